//! What the store does with each new connection: check the server, listen for changes, and read what it promises.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ::redis::Client;
use ::redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::durability::Promise;
use super::error::OpenError;
use super::link::OnConnect;
use super::notify::listen;
use super::server_check::check;

impl OnConnect for Arc<Shared> {
    async fn check(&self, connection: MultiplexedConnection) -> Result<(), OpenError> {
        check(connection.clone(), &self.keys).await?;
        self.read_promise(connection).await
    }

    async fn run_beside(&self, client: Client, connection: MultiplexedConnection) {
        let listening = listen(client, self.keys.channel(), self.wakers.clone());
        tokio::join!(listening, self.read_promise_again(connection));
    }
}

impl Shared {
    async fn read_promise(&self, connection: MultiplexedConnection) -> Result<(), OpenError> {
        let promise = Promise::read(connection).await?;
        *self.promise.lock().unwrap_or_else(PoisonError::into_inner) = promise;
        Ok(())
    }

    /// The configuration of a server may be changed while it runs.
    async fn read_promise_again(&self, connection: MultiplexedConnection) {
        loop {
            sleep(PROMISE_EVERY).await;
            // A failure is tried again in the next round; the calls notice a server that is gone.
            drop(timeout(PROMISE_WAIT, self.read_promise(connection.clone())).await);
        }
    }
}

/// How often the configuration is read.
const PROMISE_EVERY: Duration = Duration::from_secs(60);
const PROMISE_WAIT: Duration = Duration::from_secs(2);
