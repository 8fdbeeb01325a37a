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
    pub(super) sent: Sent,
}

#[derive(Debug)]
pub(super) enum Sent {
    Shipped,
    Failed(SinkError),
}

impl Sent {
    pub(super) fn error(&self) -> Option<&SinkError> {
        match self {
            Self::Shipped => None,
            Self::Failed(error) => Some(error),
        }
    }

    pub(super) fn is_refusal(&self) -> bool {
        self.error().is_some_and(SinkError::is_refusal)
    }
}

impl<S: Sink> Sending<S> {
    pub(super) fn new(sink: S) -> Self {
        Self { sink: Arc::new(sink), tasks: JoinSet::new(), leased: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
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
            Ok((id, Ok(()))) => (id, Sent::Shipped),
            Ok((id, Err(error))) => (id, Sent::Failed(error)),
            // Counted: a message that makes the sink panic must not be sent for ever.
            Err(panicked) => (panicked.id(), Sent::Failed(SinkError::refused(panicked))),
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
