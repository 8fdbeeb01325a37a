//! The messages that are being sent, each in a task of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::timeout_at;

use super::queue::Leased;
use super::{Sink, SinkError};

/// Dropped, it stops sending.
#[derive(Debug)]
pub(super) struct Sending<S> {
    sink: Arc<S>,
    tasks: JoinSet<Result<(), SinkError>>,
    leased: HashMap<Id, Leased>,
}

/// What came of a message.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) leased: Leased,
    pub(super) sent: Result<(), SinkError>,
}

impl<S: Sink> Sending<S> {
    pub(super) fn new(sink: S) -> Self {
        Self { sink: Arc::new(sink), tasks: JoinSet::new(), leased: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// How many of them are suspects.
    pub(super) fn suspects(&self) -> usize {
        self.leased.values().filter(|leased| leased.is_suspect).count()
    }

    /// Sends the message, within `send_max` of the moment when the lease was asked for.
    pub(super) fn start(&mut self, leased: Leased, send_max: Duration) {
        let (sink, message) = (self.sink.clone(), leased.message.clone());
        let until = leased.asked_at + send_max;
        let task = self.tasks.spawn(async move {
            let sent = timeout_at(until, sink.send(&message)).await;
            sent.unwrap_or_else(|_| {
                Err(SinkError::unavailable("no answer within half of the lease"))
            })
        });
        self.leased.insert(task.id(), leased);
    }

    /// What came of the next message that ends; `None` if none is being sent.
    pub(super) async fn next(&mut self) -> Option<Outcome> {
        let ended = self.tasks.join_next_with_id().await?;
        let (id, sent) = match ended {
            Ok(ended) => ended,
            // Counted: a message that makes the sink panic must not be sent for ever.
            Err(panicked) => (panicked.id(), Err(SinkError::refused(panicked))),
        };
        let leased = self.leased.remove(&id).expect("a task has a message");
        Some(Outcome { leased, sent })
    }

    /// The same, without waiting.
    pub(super) fn try_next(&mut self) -> Option<Outcome> {
        use futures_util::FutureExt;
        self.next().now_or_never().flatten()
    }
}
