//! A handle on the thread that talks to one Redis.
//!
//! 1. Calls wait in a bounded queue. They are sent without waiting for the answers of those before: a pipeline.
//! 2. A call ends with an answer or a [`Fault`]: unsure if it was sent and not answered, else not done.
//! 3. After silence or a network error the connection is given up with all calls on it, and a new one is made.
//!    The server is first told to close the old one: a call that it had not read yet is never run. So a repeated
//!    call comes after its first copy.
//! 4. While there is no connection, calls fail at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, Value};
use tokio::sync::{mpsc, oneshot, watch};

use super::error::OpenError;
use super::link_thread::LinkThread;
use super::scripts::ScriptCall;
use crate::clock::{Clock, SystemClock};
use crate::store::{Fault, StoreError};

/// The handle. The thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    calls: mpsc::Sender<Call>,
    is_up: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<()>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOptions {
    /// Calls that may wait; more are refused.
    pub(crate) queue_max: usize,
    /// How long a call may be without an answer, its wait in the queue included.
    pub(crate) answer_within: Duration,
    /// Whether the first connection must succeed, and calls wait while a lost connection is replaced. Otherwise they
    /// are refused meanwhile.
    pub(crate) waits_for_connection: bool,
    /// The pause before the next attempt to connect. It doubles with each failure.
    pub(crate) pause_min: Duration,
    /// The longest pause.
    pub(crate) pause_max: Duration,
}

/// What is done with each new connection.
pub(crate) trait OnConnect: Send + Sync + 'static {
    /// Before its first call: refuses a server that cannot be used.
    fn check(
        &self,
        connection: MultiplexedConnection,
    ) -> impl Future<Output = Result<(), OpenError>> + Send;

    /// Runs for as long as the connection is used.
    fn run_beside(
        &self,
        client: Client,
        connection: MultiplexedConnection,
    ) -> impl Future<Output = ()> + Send;
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) script: ScriptCall,
    /// By this node's boot clock.
    pub(super) asked_at: Duration,
    pub(super) reply: oneshot::Sender<Result<Value, Fault>>,
}

impl Link {
    /// Starts the thread. The receiver is told when the first connection was made, or failed and calls wait for it.
    pub(crate) fn start(
        client: Client,
        options: LinkOptions,
        on_connect: impl OnConnect,
    ) -> Result<(Self, oneshot::Receiver<Result<(), OpenError>>), OpenError> {
        let (calls, queue) = mpsc::channel(options.queue_max);
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(());
        let (opened, open) = oneshot::channel();
        let is_up = Arc::new(AtomicBool::new(false));
        let thread = LinkThread {
            client,
            options,
            on_connect,
            queue,
            stopped,
            is_up: is_up.clone(),
            last_address: None,
        };
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(thread.run(opened)),
                Err(error) => drop(opened.send(Err(OpenError::Thread(error)))),
            }
            drop(end);
        };
        let started = std::thread::Builder::new().name("onlyonce-redis".to_owned()).spawn(run);
        started.map_err(OpenError::Thread)?;
        Ok((Self { calls, is_up, stop, ended }, open))
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    /// Runs a script, and returns its answer.
    pub(crate) async fn call(&self, script: ScriptCall) -> Result<Value, Fault> {
        let (reply, answer) = oneshot::channel();
        let asked_at = SystemClock.boot();
        self.calls.try_send(Call { script, asked_at, reply }).map_err(|refusal| match refusal {
            mpsc::error::TrySendError::Full(_) => Fault::NotDone(StoreError::Busy),
            mpsc::error::TrySendError::Closed(_) => Fault::NotDone(StoreError::Closed),
        })?;
        // The thread answers every call that it took, unless it panicked.
        answer.await.unwrap_or_else(|gone| Err(Fault::Unsure(StoreError::Unavailable(gone.into()))))
    }

    /// Finishes the calls that wait, takes no more, and ends the thread.
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
