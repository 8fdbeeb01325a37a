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
use futures_util::future::join;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::connection::{Connection, LOST, not_sent, unanswered};
use super::error::RedisOpenError;
use super::scripts::ScriptCall;
use crate::runtime_thread::RuntimeThread;
use crate::store::{Fault, StoreError};

/// The handle. The thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    thread: RuntimeThread,
    options: LinkOptions,
    current: watch::Receiver<Current>,
    room: Room,
}

/// One permit for each call that may be under way. Renewals have their own, so that other calls cannot crowd them out.
#[derive(Clone, Debug)]
struct Room {
    calls: Arc<Semaphore>,
    renewals: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOptions {
    /// Calls that may be under way, and as many renewals; more are refused.
    pub(crate) calls_max: u32,
    /// How long a call may take, its wait for a connection included.
    pub(crate) answer_within: Duration,
    /// Whether the first connection must succeed, and calls wait while a lost connection is replaced, at once. Otherwise
    /// they are refused meanwhile, and it is replaced after the pause.
    pub(crate) waits_for_connection: bool,
    /// Before the next attempt to connect.
    pub(crate) retry_pause: Duration,
}

/// What is done with each new connection.
pub(crate) trait OnConnect: Send + Sync + 'static {
    /// Before its first call: refuses a server that cannot be used.
    fn check(
        &self,
        connection: MultiplexedConnection,
    ) -> impl Future<Output = Result<(), RedisOpenError>> + Send;

    /// Runs for as long as the connection is used: if it ends, so does that.
    fn run_beside(&self, client: Client) -> impl Future<Output = ()> + Send;
}

/// Where a call goes now.
#[derive(Debug)]
enum Current {
    Connecting,
    Up(Arc<Connection>),
    Down(Arc<RedisOpenError>),
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
        let permits = || Arc::new(Semaphore::new(options.calls_max as usize));
        let room = Room { calls: permits(), renewals: permits() };
        let rooms = room.clone();
        let thread = RuntimeThread::start("onlyonce-redis", move |stopped| {
            LinkThread { client, options, on_connect, connected, room: rooms, stopped }.run(opened)
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
        self.run(&self.room.calls, script).await
    }

    /// The same, for a renewal.
    pub(crate) async fn renew(&self, script: ScriptCall) -> Result<Value, Fault> {
        self.run(&self.room.renewals, script).await
    }

    async fn run(&self, room: &Arc<Semaphore>, script: ScriptCall) -> Result<Value, Fault> {
        let answer = answer(self.current.clone(), self.options, script);
        self.thread.run(room, unanswered, answer).await
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
    let deadline = Instant::now() + options.answer_within;
    let waits = options.waits_for_connection;
    let ready = current.wait_for(|current| !(waits && matches!(current, Current::Connecting)));
    let connection = match timeout_at(deadline, ready).await {
        Ok(Ok(current)) => match &*current {
            Current::Up(connection) => connection.clone(),
            Current::Down(error) => return Err(not_sent(error.clone())),
            Current::Connecting => return Err(not_sent(LOST)),
        },
        Ok(Err(_)) => return Err(Fault::NotDone(StoreError::Closed)),
        Err(elapsed) => return Err(not_sent(elapsed)),
    };
    connection.answer(&script, deadline).await
}

/// The thread behind a link: makes connections, one after the other.
struct LinkThread<O> {
    client: Client,
    options: LinkOptions,
    on_connect: O,
    connected: watch::Sender<Current>,
    room: Room,
    stopped: watch::Receiver<bool>,
}

impl<O: OnConnect> LinkThread<O> {
    async fn run(self, opened: oneshot::Sender<Result<(), RedisOpenError>>) {
        let first = self.connect(None).await;
        if self.options.waits_for_connection && first.is_err() {
            return drop(opened.send(first.map(drop)));
        }
        drop(opened.send(Ok(())));
        if first.is_err() {
            self.tell(false);
        }
        tokio::select! {
            () = self.serve(first) => {}
            () = stopped(self.stopped.clone()) => {}
        }
        // The calls that wait for a connection are told that the link is closed.
        drop(self.connected);
        let all = |room: &Arc<Semaphore>| room.clone().acquire_many_owned(self.options.calls_max);
        let all_calls = join(all(&self.room.calls), all(&self.room.renewals));
        drop(timeout(self.options.answer_within, all_calls).await);
    }

    /// Has calls use the connection until it is lost, then the next one, for ever.
    async fn serve(&self, mut made: Result<Connection, RedisOpenError>) {
        let mut last_address = None;
        loop {
            let pauses = made.is_err() || !self.options.waits_for_connection;
            match made {
                Ok(connection) => {
                    // A connection whose address is not known is not closed; the one before it still may be.
                    last_address = connection.address.clone().or(last_address);
                    self.tell(true);
                    self.use_connection(Arc::new(connection)).await;
                    self.tell(false);
                }
                Err(error) => drop(self.connected.send_replace(Current::Down(Arc::new(error)))),
            }
            if pauses {
                sleep(self.options.retry_pause).await;
            }
            self.connected.send_replace(Current::Connecting);
            made = self.connect(last_address.as_deref()).await;
        }
    }

    /// Logs when a filter becomes usable or unusable. A store needs no such line: its calls fail.
    fn tell(&self, is_up: bool) {
        match is_up {
            _ if self.options.waits_for_connection => {}
            true => info!("the filter is in use"),
            false => {
                warn!("the filter is lost: the store answers every retry until the filter is back");
            }
        }
    }

    async fn use_connection(&self, connection: Arc<Connection>) {
        self.connected.send_replace(Current::Up(connection.clone()));
        tokio::select! {
            () = connection.lost() => {}
            () = self.on_connect.run_beside(self.client.clone()) => {}
        }
        self.connected.send_replace(Current::Connecting);
    }

    /// A connection that is ready for calls.
    async fn connect(&self, last_address: Option<&str>) -> Result<Connection, RedisOpenError> {
        let making = Connection::make(&self.client, &self.on_connect, last_address);
        let made = timeout(CONNECT_WAIT, making).await;
        made.unwrap_or(Err(RedisOpenError::Silent(CONNECT_WAIT)))
    }
}

async fn stopped(mut stopped: watch::Receiver<bool>) {
    // An error says that the link is gone.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// How long a new connection may take until it is ready.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
