//! Sample C: one value in Redis, deleted when the handler raises.

use redis::aio::MultiplexedConnection;
use redis::{AsyncTypedCommands, ExistenceCheck, SetExpiry, SetOptions};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::charges::Charges;
use super::{Asked, Reply, SampleError, Settings};

pub(super) struct Redis(MultiplexedConnection);

impl Redis {
    pub(super) async fn open(settings: &Settings) -> Result<Self, SampleError> {
        Ok(Self(connect(&settings.redis).await?))
    }

    pub(super) async fn handle(
        &self,
        asked: &Asked,
        charges: &Charges,
    ) -> Result<Reply, SampleError> {
        // The defect: parts that may contain the separator are joined.
        let key = format!("{}:{}:{}", asked.caller, asked.endpoint, asked.key);
        let fingerprint = fingerprint(&asked.body);
        let claim = json!({ "state": "in_progress", "fingerprint": fingerprint });
        let mut redis = self.0.clone();
        let options = expiring().conditional_set(ExistenceCheck::NX);
        if redis.set_options(&key, claim.to_string(), options).await?.is_none() {
            let value = redis.get(&key).await?.unwrap_or_default();
            return Ok(replay(&value, &fingerprint));
        }
        match charges.charge(&asked.order).await {
            Ok(reply) => {
                let done = json!({
                    "state": "completed", "fingerprint": fingerprint, "status": reply.status, "body": reply.body,
                });
                // The defect: unconditional, whoever holds the key by now.
                redis.set_options(&key, done.to_string(), expiring()).await?;
                Ok(reply)
            }
            // The defect: the effect may exist, and the retry executes again.
            Err(raised) => {
                redis.del(&key).await?;
                Err(raised.into())
            }
        }
    }
}

/// The defect: another request is told "in progress" until the first has ended.
fn replay(value: &str, fingerprint: &str) -> Reply {
    let value: Value = serde_json::from_str(value).unwrap_or_default();
    if value["state"] != "completed" {
        return Reply::refused(409, "the first request is still running");
    }
    if value["fingerprint"] != fingerprint {
        return Reply::refused(409, "the key was used for another request");
    }
    let status = value["status"].as_u64().and_then(|status| status.try_into().ok());
    Reply::new(status.unwrap_or(200), value["body"].clone())
}

pub(super) async fn connect(url: &str) -> Result<MultiplexedConnection, SampleError> {
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection().await?)
}

fn fingerprint(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn expiring() -> SetOptions {
    SetOptions::default().with_expiration(SetExpiry::EX(TTL_S))
}

const TTL_S: u64 = 24 * 60 * 60;
