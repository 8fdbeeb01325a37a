//! Listens for the ids of records that other nodes have changed, and wakes their waiters here.

use std::time::Duration;

use ::redis::aio::PubSub;
use ::redis::{Client, RedisError};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::keys::from_hex;
use crate::store::wake::Wakers;

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
                Some(message) => drop(from_hex(message.get_payload_bytes()).map(|id| wakers.wake(id))),
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

/// How long a subscription, or the answer to a ping, may take.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(1);
/// After so long without a message a ping is sent.
const PING_EVERY: Duration = Duration::from_secs(2);
const SUBSCRIBE_PAUSE: Duration = Duration::from_millis(200);
