//! A handle on the thread that talks to one Redis.
//!
//! 1. Each call is a task on that thread. Calls are sent without waiting for the answers of those before: a pipeline.
//!    How many may be under way is bounded.
//! 2. A call ends with an answer or a [`Fault`]: unsure if it was sent and not answered, else not done.
//! 3. After silence or a network error the connection is given up with all calls on it, and a new one is made.
//!    The server is first told to close the old one: a call that it had not read yet is never run. So a repeated
//!    call comes after its first copy.
//! 4. While Redis cannot be reached, calls fail at once.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, Value};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

use super::connection::{Connection, Lost, not_sent, unanswered};
use super::error::RedisOpenError;
use super::link_thread::LinkThread;
use super::scripts::ScriptCall;
use crate::clock::{Clock, SystemClock};
use crate::runtime_thread::RuntimeThread;
use crate::store::{Fault, StoreError};

/// The handle. The thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    thread: RuntimeThread,
    options: LinkOptions,
    current: watch::Receiver<Current>,
    /// One permit for each call that may be under way.
    room: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOptions {
    /// Calls that may be under way; more are refused.
    pub(crate) calls_max: u32,
    /// How long a call may take, its wait for a connection included.
    pub(crate) answer_within: Duration,
    /// Whether the first connection must succeed, and calls wait while a lost connection is replaced. Otherwise they
    /// are refused meanwhile.
    pub(crate) waits_for_connection: bool,
    /// The pause before the next attempt to connect. It doubles with each failure, up to `pause_max`.
    pub(crate) pause_min: Duration,
    pub(crate) pause_max: Duration,
}

/// What is done with each new connection.
pub(crate) trait OnConnect: Send + Sync + 'static {
    /// Before its first call: refuses a server that cannot be used.
    fn check(
        &self,
        connection: MultiplexedConnection,
    ) -> impl Future<Output = Result<(), RedisOpenError>> + Send;

    /// Runs for as long as the connection is used.
    fn run_beside(
        &self,
        client: Client,
        connection: MultiplexedConnection,
    ) -> impl Future<Output = ()> + Send;
}

/// Where a call goes now.
#[derive(Debug)]
pub(super) enum Current {
    Connecting,
    Up(Arc<Connection>),
    Down(Arc<RedisOpenError>),
    Closed,
}

impl Link {
    /// Starts the thread. The receiver is told when the first connection was made; or why not, if it must succeed.
    pub(crate) fn start(
        client: Client,
        options: LinkOptions,
        on_connect: impl OnConnect,
    ) -> Result<(Self, oneshot::Receiver<Result<(), RedisOpenError>>), RedisOpenError> {
        let (connected, current) = watch::channel(Current::Connecting);
        let (opened, open) = oneshot::channel();
        let room = Arc::new(Semaphore::new(options.calls_max as usize));
        let calls = room.clone();
        let thread = RuntimeThread::start("onlyonce-redis", move |stopped| {
            LinkThread { client, options, on_connect, connected, room: calls, stopped }.run(opened)
        });
        let thread = thread.map_err(RedisOpenError::Thread)?;
        Ok((Self { thread, options, current, room }, open))
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.current.borrow(), Current::Up(_))
    }

    /// Runs a script, and returns its answer.
    pub(crate) async fn call(&self, script: ScriptCall) -> Result<Value, Fault> {
        let answer = answer(self.current.clone(), self.options, script);
        self.thread.run(&self.room, unanswered, answer).await
    }

    /// Finishes the calls under way, takes no more, and ends the thread.
    pub(crate) async fn close(&self) {
        self.thread.stop().await;
    }
}

async fn answer(
    mut current: watch::Receiver<Current>,
    options: LinkOptions,
    script: ScriptCall,
) -> Result<Value, Fault> {
    let start = SystemClock.boot();
    let waits = options.waits_for_connection;
    let ready = current.wait_for(|current| !(waits && matches!(current, Current::Connecting)));
    let connection = match timeout(options.answer_within, ready).await {
        Ok(Ok(current)) => match &*current {
            Current::Up(connection) => connection.clone(),
            Current::Down(error) => return Err(not_sent(NotConnected(error.clone()))),
            Current::Closed => return Err(Fault::NotDone(StoreError::Closed)),
            Current::Connecting => return Err(not_sent(Lost)),
        },
        _ => return Err(not_sent(Lost)),
    };
    let waited = SystemClock.boot().saturating_sub(start);
    connection.answer(&script, options.answer_within.saturating_sub(waited)).await
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("there is no connection to Redis: {0}")]
struct NotConnected(Arc<RedisOpenError>);
