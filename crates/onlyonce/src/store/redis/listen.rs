//! Hears of the writes of other nodes, and wakes those who wait here.

use std::time::Duration;

use ::redis::aio::PubSub;
use ::redis::{Client, RedisError};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use crate::scope::OperationId;
use crate::store::wake::Wakers;

/// Listens for ever. After a gap everyone is woken: nobody knows what was missed.
pub(super) async fn listen(client: Client, channel: String, wakers: Wakers) {
    let mut pause = PAUSE_MIN;
    loop {
        if let Ok(Ok(heard)) = timeout(SUBSCRIBE_WAIT, subscribe(&client, &channel)).await {
            pause = PAUSE_MIN;
            wakers.wake_all();
            hear(heard, &wakers).await;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn subscribe(client: &Client, channel: &str) -> Result<PubSub, RedisError> {
    let mut heard = client.get_async_pubsub().await?;
    heard.subscribe(channel).await?;
    Ok(heard)
}

/// Until the connection is lost, or gives no sign of life.
async fn hear(heard: PubSub, wakers: &Wakers) {
    let (mut sink, mut messages) = heard.split();
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => wake(message.get_payload_bytes(), wakers),
                None => return,
            },
            () = sleep(PING_EVERY) => {
                let sign = timeout(SUBSCRIBE_WAIT, sink.ping::<::redis::Value>()).await;
                if !matches!(sign, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

fn wake(payload: &[u8], wakers: &Wakers) {
    if let Ok(id) = payload.try_into() {
        wakers.wake(OperationId::from_bytes(id));
    }
}

/// How long a subscription, or a sign of life, may take.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(1);
/// After so long without a message a sign of life is asked for.
const PING_EVERY: Duration = Duration::from_secs(2);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
