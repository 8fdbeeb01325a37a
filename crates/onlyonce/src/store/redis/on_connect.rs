//! What the store does with each new connection: check the server, keep what it promises, and listen for the ids of records
//! that other nodes have changed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ::redis::aio::{MultiplexedConnection, PubSub};
use ::redis::{Client, Msg, RedisError};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::durability::Promise;
use super::error::RedisOpenError;
use super::keys::CHANNEL;
use super::link::OnConnect;
use super::server::RedisFacts;
use crate::store::wake::Wakers;

impl OnConnect for Arc<Shared> {
    async fn check(&self, connection: MultiplexedConnection) -> Result<(), RedisOpenError> {
        let facts = RedisFacts::read(connection, &self.keys).await?;
        facts.demand_usable(&self.keys)?;
        let promise = Promise { settings: facts.settings };
        *self.promise.lock().unwrap_or_else(PoisonError::into_inner) = promise;
        Ok(())
    }

    async fn run_beside(&self, client: Client) {
        listen(client, self.keys.named(CHANNEL), self.wakers.clone()).await;
    }
}

/// Listens for ever. With each new subscription all waiters are woken: messages may have been missed before it.
async fn listen(client: Client, channel: String, wakers: Wakers) {
    loop {
        if let Ok(Ok(subscription)) = timeout(SUBSCRIBE_WAIT, subscribe(&client, &channel)).await {
            wakers.wake_all();
            receive(subscription, &wakers).await;
        }
        sleep(SUBSCRIBE_PAUSE).await;
    }
}

async fn subscribe(client: &Client, channel: &str) -> Result<PubSub, RedisError> {
    let mut subscription = client.get_async_pubsub().await?;
    subscription.subscribe(channel).await?;
    Ok(subscription)
}

/// Until the connection is lost, or does not answer a ping.
async fn receive(subscription: PubSub, wakers: &Wakers) {
    let (mut sink, mut messages) = subscription.split();
    loop {
        match timeout(PING_EVERY, messages.next()).await {
            Ok(Some(message)) => wake(&message, wakers),
            Ok(None) => return,
            Err(_) => {
                let pong = timeout(SUBSCRIBE_WAIT, sink.ping::<::redis::Value>()).await;
                if !matches!(pong, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

fn wake(message: &Msg, wakers: &Wakers) {
    if let Ok(Ok(id)) = message.get_payload::<String>().map(|id| id.parse()) {
        wakers.wake(id);
    }
}

/// How long a subscription, or the answer to a ping, may take.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(1);
/// After so long without a message a ping is sent.
const PING_EVERY: Duration = Duration::from_secs(2);
const SUBSCRIBE_PAUSE: Duration = Duration::from_millis(200);
