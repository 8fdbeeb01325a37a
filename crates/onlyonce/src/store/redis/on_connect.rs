//! What the store does with each new connection: check the server, listen for the ids of records that other nodes have
//! changed, and read what it promises.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ::redis::aio::{MultiplexedConnection, PubSub};
use ::redis::{Client, InfoDict, Msg, RedisError};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::durability::Promise;
use super::error::RedisOpenError;
use super::keys::{CHANNEL, Keys};
use super::link::OnConnect;
use crate::store::wake::Wakers;

impl OnConnect for Arc<Shared> {
    async fn check(&self, connection: MultiplexedConnection) -> Result<(), RedisOpenError> {
        check_server(connection.clone()).await?;
        refuse_older_format(connection.clone(), &self.keys).await?;
        self.read_promise(connection).await
    }

    async fn run_beside(&self, client: Client, connection: MultiplexedConnection) {
        let listening = listen(client, self.keys.named(CHANNEL), self.wakers.clone());
        tokio::join!(listening, self.read_promise_again(connection));
    }
}

impl Shared {
    async fn read_promise(&self, connection: MultiplexedConnection) -> Result<(), RedisOpenError> {
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

/// Refuses a server that the store cannot work with.
async fn check_server(mut connection: MultiplexedConnection) -> Result<(), RedisOpenError> {
    let info = ::redis::cmd("INFO").query_async::<InfoDict>(&mut connection).await?;
    let field = |name: &str| info.get::<String>(name).unwrap_or_default();
    if field("cluster_enabled") == "1" {
        return Err(RedisOpenError::Cluster);
    }
    if field("role") == "slave" {
        return Err(RedisOpenError::Replica);
    }
    let found = field("redis_version");
    if is_too_old(&found) { Err(RedisOpenError::TooOld { found }) } else { Ok(()) }
}

/// Refuses a database of an earlier build: its records have other names, so this build would not find them, and their
/// operations would run again.
async fn refuse_older_format(
    mut connection: MultiplexedConnection,
    keys: &Keys,
) -> Result<(), RedisOpenError> {
    let mut exists = ::redis::cmd("EXISTS");
    exists.arg(&keys.of_older_format());
    match exists.query_async::<u64>(&mut connection).await? {
        0 => Ok(()),
        1.. => Err(RedisOpenError::OlderFormat { prefix: keys.prefix().to_owned() }),
    }
}

/// Version 6.2 brought `CLIENT INFO`, which tells the address of a connection.
pub(super) fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (6, 2)
}

/// Listens for ever. With each new subscription all waiters are woken: messages may have been missed before it.
pub(super) async fn listen(client: Client, channel: String, wakers: Wakers) {
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
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => woken(&message, wakers),
                None => return,
            },
            () = sleep(PING_EVERY) => {
                let pong = timeout(SUBSCRIBE_WAIT, sink.ping::<::redis::Value>()).await;
                if !matches!(pong, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

fn woken(message: &Msg, wakers: &Wakers) {
    if let Ok(Ok(id)) = message.get_payload::<String>().map(|id| id.parse()) {
        wakers.wake(id);
    }
}

/// How long a subscription, or the answer to a ping, may take.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(1);
/// After so long without a message a ping is sent.
const PING_EVERY: Duration = Duration::from_secs(2);
const SUBSCRIBE_PAUSE: Duration = Duration::from_millis(200);
/// How often the configuration is read.
const PROMISE_EVERY: Duration = Duration::from_secs(60);
const PROMISE_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_6_2_are_too_old() {
        for (version, is_old) in [
            ("6.0.16", true),
            ("5.0", true),
            ("", true),
            ("6.2.0", false),
            ("7.0.15", false),
            ("10.1", false),
        ] {
            assert_eq!(is_too_old(version), is_old, "{version:?}");
        }
    }
}
