//! The thread behind a [`Link`](super::link::Link): makes connections, and hands the waiting calls to them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::Client;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{Connection, Lost, not_sent};
use super::error::OpenError;
use super::link::{Call, LinkOptions, OnConnect};
use crate::clock::{Clock, SystemClock};
use crate::store::{Fault, StoreError};

pub(super) struct LinkThread<O> {
    pub(super) client: Client,
    pub(super) options: LinkOptions,
    pub(super) on_connect: O,
    pub(super) queue: mpsc::Receiver<Call>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) is_up: Arc<AtomicBool>,
    /// The address by which the server knows our last connection.
    pub(super) last_address: Option<String>,
}

impl<O: OnConnect> LinkThread<O> {
    pub(super) async fn run(mut self, opened: oneshot::Sender<Result<(), OpenError>>) {
        match self.connect().await {
            Err(error) if self.options.waits_for_connection => drop(opened.send(Err(error))),
            first => {
                drop(opened.send(Ok(())));
                self.serve(first.map_err(Arc::new)).await;
            }
        }
    }

    /// Uses the connection until it is lost, then the next one, until the link is closed.
    async fn serve(mut self, mut connection: Result<Connection, Arc<OpenError>>) {
        let mut pause = self.options.pause_min;
        while !*self.stopped.borrow() {
            match connection {
                Ok(connection) => {
                    if self.use_connection(connection).await > self.options.pause_max {
                        pause = self.options.pause_min;
                    }
                    if !self.options.waits_for_connection {
                        self.refuse_for(&mut pause, &Lost).await;
                    }
                }
                Err(error) => self.refuse_for(&mut pause, &NotConnected(error)).await,
            }
            connection = self.connect().await.map_err(Arc::new);
        }
        self.queue.close();
        while let Ok(call) = self.queue.try_recv() {
            drop(call.reply.send(Err(Fault::NotDone(StoreError::Closed))));
        }
    }

    /// Returns how long the connection was used.
    async fn use_connection(&mut self, connection: Connection) -> Duration {
        let start = SystemClock.boot();
        self.is_up.store(true, Ordering::Release);
        self.hand_over_calls(connection).await;
        self.is_up.store(false, Ordering::Release);
        SystemClock.boot() - start
    }

    /// Hands calls to the connection until it is lost, or until the link is closed and all calls are done.
    async fn hand_over_calls(&mut self, connection: Connection) {
        let connection = Arc::new(connection);
        let beside = self.on_connect.run_beside(self.client.clone(), connection.inner.clone());
        let mut beside = pin!(beside);
        let mut is_beside_over = false;
        let mut stopped = self.stopped.clone();
        let mut calls = JoinSet::new();
        loop {
            let is_closing = *stopped.borrow_and_update();
            if is_closing {
                self.queue.close();
            }
            tokio::select! {
                () = connection.lost() => return calls.detach_all(),
                () = &mut beside, if !is_beside_over => is_beside_over = true,
                _ = stopped.changed(), if !is_closing => {}
                Some(_) = calls.join_next() => {}
                call = self.queue.recv(), if calls.len() < IN_FLIGHT_MAX => match call {
                    Some(call) => {
                        let (connection, within) = (connection.clone(), self.options.answer_within);
                        calls.spawn(async move { connection.answer(call, within).await });
                    }
                    // Each of them ends in bounded time.
                    None => return drop(calls.join_all().await),
                },
            }
        }
    }

    /// Refuses calls for the length of the pause, which doubles for the next time. None of them was sent.
    async fn refuse_for(
        &mut self,
        pause: &mut Duration,
        why: &(impl Clone + std::error::Error + Send + Sync + 'static),
    ) {
        let mut over = pin!(sleep(*pause));
        *pause = (*pause * 2).min(self.options.pause_max);
        let mut stopped = self.stopped.clone();
        loop {
            tokio::select! {
                () = &mut over => return,
                _ = stopped.wait_for(|stopped| *stopped) => return,
                call = self.queue.recv() => match call {
                    Some(call) => refuse(call, why.clone()),
                    None => return,
                },
            }
        }
    }

    /// A connection that is ready for calls. Unless calls wait for it, they are refused meanwhile.
    async fn connect(&mut self) -> Result<Connection, OpenError> {
        let last = self.last_address.clone();
        let making = Connection::make(&self.client, &self.on_connect, last.as_deref());
        let mut making = pin!(timeout(CONNECT_WAIT, making));
        let waits = self.options.waits_for_connection;
        let made = loop {
            tokio::select! {
                made = &mut making => break made,
                Some(call) = self.queue.recv(), if !waits => refuse(call, Lost),
            }
        };
        let connection = made.unwrap_or(Err(OpenError::Silent { within: CONNECT_WAIT }))?;
        // The next connection has the server close this one, if its address is known.
        self.last_address = connection.address.clone().or_else(|| last.clone());
        Ok(connection)
    }
}

fn refuse(call: Call, why: impl std::error::Error + Send + Sync + 'static) {
    // A caller who no longer listens has dropped the call.
    drop(call.reply.send(Err(not_sent(why))));
}

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no connection to Redis: {0}")]
struct NotConnected(Arc<OpenError>);

/// How long a new connection may take until it is ready.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// How many calls may be on the connection.
const IN_FLIGHT_MAX: usize = 1024;
