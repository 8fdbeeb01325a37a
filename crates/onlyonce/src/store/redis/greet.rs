//! What the store does with each new connection: look whom it talks to, and listen.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::Client;
use ::redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::error::OpenError;
use super::link::Greet;
use super::listen::listen;
use super::promise::{self, Promise};
use crate::store::wake::Wakers;

pub(super) struct StoreGreeting {
    channel: String,
    wakers: Wakers,
    promise: Arc<Mutex<Promise>>,
}

impl StoreGreeting {
    pub(super) fn new(channel: String, wakers: Wakers, promise: Arc<Mutex<Promise>>) -> Self {
        Self { channel, wakers, promise }
    }

    async fn read_promise(&self, connection: MultiplexedConnection) -> Result<(), OpenError> {
        let promise = Promise::read(connection).await?;
        *self.promise.lock().unwrap_or_else(PoisonError::into_inner) = promise;
        Ok(())
    }

    /// A configuration may be changed while the server runs.
    async fn read_promise_again(&self, client: &Client) {
        loop {
            sleep(PROMISE_EVERY).await;
            let read = async {
                let connection = client.get_multiplexed_async_connection().await;
                self.read_promise(connection.map_err(OpenError::Unreachable)?).await
            };
            // The next round tries again; a server that is gone is noticed elsewhere.
            drop(timeout(PROMISE_WAIT, read).await);
        }
    }
}

impl Greet for StoreGreeting {
    async fn greet(&self, connection: MultiplexedConnection) -> Result<(), OpenError> {
        promise::check(connection.clone()).await?;
        self.read_promise(connection).await
    }

    async fn beside(&self, client: Client) {
        let listening = listen(client.clone(), self.channel.clone(), self.wakers.clone());
        tokio::join!(listening, self.read_promise_again(&client));
    }
}

/// How often the configuration is read.
const PROMISE_EVERY: Duration = Duration::from_secs(60);
const PROMISE_WAIT: Duration = Duration::from_secs(2);
