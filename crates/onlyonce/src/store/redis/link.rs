//! A connection to Redis that runs on a thread and a runtime of its own.
//!
//! 1. Calls wait in a bounded queue. What is in it is sent without waiting for answers: it is a pipeline.
//! 2. A call ends with an answer, or with what is known of it: [`Trouble`].
//! 3. After silence, or an error of the network, the connection is given up with all that is on it, and
//!    another is made. The server is told to drop the old one first: what may still lie there unread is
//!    never run, so that a repeated call is behind its first copy.
//! 4. While there is no connection, calls fail at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::{Client, Value};
use tokio::sync::{mpsc, oneshot, watch};

use super::error::OpenError;
use super::runner::Runner;
use super::script::Invocation;
use crate::clock::{Clock, SystemClock};
use crate::store::BoxError;

/// The handle of the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    calls: mpsc::Sender<Call>,
    is_up: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<()>,
}

/// How a link behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// Calls that may wait.
    pub(crate) queue_max: usize,
    /// How long a call may be without an answer, its wait in the queue included.
    pub(crate) answer_within: Duration,
    /// Whether calls wait while a connection is being made.
    pub(crate) is_patient: bool,
    /// The pause before a connection is made again; it doubles with each failure.
    pub(crate) pause_min: Duration,
    /// The longest pause.
    pub(crate) pause_max: Duration,
}

/// What is done with each new connection before it is used, and beside it.
pub(crate) trait Greet: Send + Sync + 'static {
    /// Refuses a server that is not what it should be.
    fn greet(
        &self,
        connection: ::redis::aio::MultiplexedConnection,
    ) -> impl Future<Output = Result<(), OpenError>> + Send;

    /// Runs beside it, for as long as it is used.
    fn beside(
        &self,
        client: Client,
        connection: ::redis::aio::MultiplexedConnection,
    ) -> impl Future<Output = ()> + Send;
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) ask: Invocation,
    /// By this node's boot clock.
    pub(super) asked_at: Duration,
    pub(super) reply: oneshot::Sender<Result<Value, Trouble>>,
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The queue is full, or the server is busy with a script.
    #[error("the store is busy")]
    Full,
    /// The link was closed before it was sent.
    #[error("the link is closed")]
    Closed,
    /// It was never sent.
    #[error("it was not sent")]
    NotSent(#[source] BoxError),
    /// The server answered with an error: the record was not written.
    #[error("Redis refused it")]
    Refused(#[source] BoxError),
    /// It was sent, and nobody knows.
    #[error("Redis gave no answer")]
    Unanswered(#[source] BoxError),
}

impl Link {
    /// Starts the thread; the receiver hears what became of the first connection.
    pub(crate) fn start(
        client: Client,
        manners: Manners,
        greet: impl Greet,
    ) -> Result<(Self, oneshot::Receiver<Result<(), OpenError>>), OpenError> {
        let (calls, queue) = mpsc::channel(manners.queue_max);
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(());
        let (opened, open) = oneshot::channel();
        let is_up = Arc::new(AtomicBool::new(false));
        let runner = Runner::new(client, manners, greet, queue, stopped, is_up.clone());
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(runner.run(opened)),
                Err(error) => drop(opened.send(Err(OpenError::Thread(error)))),
            }
            drop(end);
        };
        let thread = std::thread::Builder::new().name("onlyonce-redis".to_owned()).spawn(run);
        thread.map_err(OpenError::Thread)?;
        Ok((Self { calls, is_up, stop, ended }, open))
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    /// The answer of the script.
    pub(crate) async fn call(&self, ask: Invocation) -> Result<Value, Trouble> {
        let (reply, answer) = oneshot::channel();
        let asked_at = SystemClock.boot();
        self.calls.try_send(Call { ask, asked_at, reply }).map_err(|refusal| match refusal {
            mpsc::error::TrySendError::Full(_) => Trouble::Full,
            mpsc::error::TrySendError::Closed(_) => Trouble::Closed,
        })?;
        // The thread answers every call that it took; one that is gone died with it.
        answer.await.unwrap_or_else(|gone| Err(Trouble::Unanswered(gone.into())))
    }

    /// Finishes what was asked, takes nothing more, and ends the thread.
    pub(crate) async fn close(&self) {
        self.stop.send_replace(true);
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}
