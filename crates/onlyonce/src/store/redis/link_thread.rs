//! The thread behind a [`Link`](super::link::Link): makes connections, one after the other.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use ::redis::Client;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::connection::Connection;
use super::error::RedisOpenError;
use super::link::{Current, LinkOptions, OnConnect};
use crate::clock::{Clock, SystemClock};

pub(super) struct LinkThread<O> {
    pub(super) client: Client,
    pub(super) options: LinkOptions,
    pub(super) on_connect: O,
    pub(super) connected: watch::Sender<Current>,
    /// Each call under way has a permit of it.
    pub(super) room: Arc<Semaphore>,
    pub(super) stopped: watch::Receiver<bool>,
}

impl<O: OnConnect> LinkThread<O> {
    pub(super) async fn run(self, opened: oneshot::Sender<Result<(), RedisOpenError>>) {
        let first = self.connect(None).await;
        match first {
            Err(error) if self.options.waits_for_connection => drop(opened.send(Err(error))),
            first => {
                drop(opened.send(Ok(())));
                self.serve(first).await;
            }
        }
    }

    /// Has calls use the connection until it is lost, then the next one, until the link is closed.
    async fn serve(self, mut made: Result<Connection, RedisOpenError>) {
        let LinkOptions { pause_min, pause_max, waits_for_connection, .. } = self.options;
        let (mut pause, mut last_address) = (pause_min, None);
        let mut told = Told::Nothing;
        while !*self.stopped.borrow() {
            let mut pauses = true;
            match made {
                Ok(connection) => {
                    // A connection whose address is not known is not closed; the one before it still may be.
                    last_address = connection.address.clone().or(last_address);
                    self.tell(&mut told, Told::Up);
                    let used_for = self.use_connection(connection).await;
                    pause = if used_for > pause_max { pause_min } else { pause };
                    pauses = !waits_for_connection;
                }
                Err(error) => drop(self.connected.send_replace(Current::Down(Arc::new(error)))),
            }
            self.tell(&mut told, Told::Lost);
            if pauses {
                self.unless_stopped(sleep(pause)).await;
                pause = (pause * 2).min(pause_max);
            }
            self.connected.send_replace(Current::Connecting);
            made = self.connect(last_address.as_deref()).await;
        }
        self.connected.send_replace(Current::Closed);
        let all_calls = self.room.acquire_many(self.options.calls_max);
        drop(timeout(self.options.answer_within, all_calls).await);
    }

    /// Says what became of a filter. What becomes of a store, its calls show.
    fn tell(&self, told: &mut Told, news: Told) {
        let is_news =
            *told != news && !self.options.waits_for_connection && !*self.stopped.borrow();
        *told = news;
        match news {
            Told::Up if is_news => info!("the filter is in use"),
            Told::Lost if is_news => {
                warn!("the filter is lost: the store answers every retry until the filter is back");
            }
            _ => {}
        }
    }

    /// Returns how long the connection was used.
    async fn use_connection(&self, connection: Connection) -> Duration {
        let start = SystemClock.boot();
        let connection = Arc::new(connection);
        self.connected.send_replace(Current::Up(connection.clone()));
        let beside = async {
            self.on_connect.run_beside(self.client.clone(), connection.inner.clone()).await;
            pending::<()>().await;
        };
        let used = async {
            tokio::select! {
                () = connection.lost() => {}
                () = beside => {}
            }
        };
        self.unless_stopped(used).await;
        self.connected.send_replace(Current::Connecting);
        SystemClock.boot() - start
    }

    async fn unless_stopped(&self, work: impl Future<Output = ()>) {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            () = work => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }

    /// A connection that is ready for calls.
    async fn connect(&self, last_address: Option<&str>) -> Result<Connection, RedisOpenError> {
        let making = Connection::make(&self.client, &self.on_connect, last_address);
        let made = timeout(CONNECT_WAIT, making).await;
        made.unwrap_or(Err(RedisOpenError::Silent { within: CONNECT_WAIT }))
    }
}

/// What was last said about a filter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Up,
    Lost,
}

/// How long a new connection may take until it is ready.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
