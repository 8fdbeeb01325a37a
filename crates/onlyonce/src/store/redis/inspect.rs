//! Asks a Redis how it is set up: nothing is written, no script is loaded.

use std::collections::BTreeMap;

use ::redis::Client;
use ::redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::durability::{Settings, read_settings};
use super::error::{RedisOpenError, if_allowed};
use super::on_connect::is_too_old;
use super::{ANSWER_WAIT, Keys, RedisOptions};
use crate::clock::{Clock, StoreTime, SystemClock};

/// What a Redis says of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisFacts {
    info: BTreeMap<String, String>,
    /// `None` if the server does not let us read its settings.
    settings: Option<Settings>,
    /// How far its clock is ahead of this node's, in milliseconds; negative if it is behind.
    pub clock_ahead_ms: i64,
    /// Whether it holds records of a build before the first release, which this build does not read.
    pub has_older_format: bool,
}

impl RedisFacts {
    /// What `INFO` says under this name; empty if it says nothing.
    pub fn info(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    /// What `CONFIG GET` says; `None` if the server does not let us read it.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether it is older than the oldest version that the store works with, 6.2.
    pub fn is_too_old(&self) -> bool {
        is_too_old(self.info("redis_version"))
    }
}

/// Asks the Redis at `url`.
///
/// # Errors
/// If it cannot be reached, or refuses us.
pub async fn inspect(url: &str) -> Result<RedisFacts, RedisOpenError> {
    let client = Client::open(url).map_err(RedisOpenError::Address)?;
    let asked = timeout(ANSWER_WAIT, ask(client)).await;
    asked.unwrap_or(Err(RedisOpenError::Silent { within: ANSWER_WAIT }))
}

async fn ask(client: Client) -> Result<RedisFacts, RedisOpenError> {
    let mut connection = client.get_multiplexed_async_connection().await?;
    let info: String = ::redis::cmd("INFO").query_async(&mut connection).await?;
    let pairs = info.lines().filter_map(|line| line.trim_end().split_once(':'));
    let info = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let keys = Keys::new(&RedisOptions::new().prefix)?.of_older_format();
    // A cluster refuses keys of several slots.
    let older = ::redis::cmd("EXISTS").arg(&keys).query_async::<u64>(&mut connection).await;
    let older = if_allowed(older)?.unwrap_or(0);
    Ok(RedisFacts {
        info,
        settings: read_settings(connection.clone()).await?,
        clock_ahead_ms: clock_ahead_ms(connection).await?,
        has_older_format: older > 0,
    })
}

/// Against the middle of the time between question and answer.
async fn clock_ahead_ms(mut connection: MultiplexedConnection) -> Result<i64, RedisOpenError> {
    let before = SystemClock.wall();
    let (seconds, micros): (i64, i64) = ::redis::cmd("TIME").query_async(&mut connection).await?;
    let middle = before.plus_ms(SystemClock.wall().since_ms(before) / 2);
    let its = StoreTime::from_ms(seconds.saturating_mul(1000).saturating_add(micros / 1000));
    Ok(its.since_ms(middle))
}
