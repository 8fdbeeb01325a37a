//! What the store does with each new connection: look whom it talks to and what time it is there, listen, and beat.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ::redis::Client;
use ::redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::error::OpenError;
use super::link::Greet;
use super::listen::listen;
use super::promise::{self, Promise};

pub(super) struct StoreGreeting(pub(super) Arc<Shared>);

impl StoreGreeting {
    async fn read_promise(&self, connection: MultiplexedConnection) -> Result<(), OpenError> {
        let promise = Promise::read(connection).await?;
        *self.0.promise.lock().unwrap_or_else(PoisonError::into_inner) = promise;
        Ok(())
    }

    /// A configuration may be changed while the server runs.
    async fn read_promise_again(&self, connection: MultiplexedConnection) {
        loop {
            sleep(PROMISE_EVERY).await;
            // The next round tries again; a server that is gone is noticed elsewhere.
            drop(timeout(PROMISE_WAIT, self.read_promise(connection.clone())).await);
        }
    }
}

impl Greet for StoreGreeting {
    async fn greet(&self, connection: MultiplexedConnection) -> Result<(), OpenError> {
        promise::check(connection.clone()).await?;
        self.read_promise(connection.clone()).await?;
        self.0.look(connection).await.map_err(OpenError::Unreachable)
    }

    async fn beside(&self, client: Client, connection: MultiplexedConnection) {
        let listening = listen(client, self.0.names.channel(), self.0.wakers.clone());
        let reading = self.read_promise_again(connection.clone());
        tokio::join!(listening, reading, self.0.beat_on(connection));
    }
}

/// How often the configuration is read.
const PROMISE_EVERY: Duration = Duration::from_secs(60);
const PROMISE_WAIT: Duration = Duration::from_secs(2);
