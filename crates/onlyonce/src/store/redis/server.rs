//! What a Redis says of itself: judged with each new connection, and told to `onlyonce doctor`. Nothing is written, no
//! script is loaded.

use std::collections::BTreeMap;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, RedisError};
use tokio::time::timeout;

use super::durability::{Settings, read_settings};
use super::error::RedisOpenError;
use super::{ANSWER_WAIT, Keys, RedisOptions};
use crate::clock::{StoreTime, ahead_ms};

/// What a Redis says of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisFacts {
    info: BTreeMap<String, String>,
    /// `None` if the server does not let us read its settings.
    pub(super) settings: Option<Settings>,
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

    fn is_cluster(&self) -> bool {
        self.info("cluster_enabled") == "1"
    }

    pub(super) async fn read(
        mut connection: MultiplexedConnection,
        keys: &Keys,
    ) -> Result<Self, RedisOpenError> {
        let info: String = ::redis::cmd("INFO").query_async(&mut connection).await?;
        let pairs = info.lines().filter_map(|line| line.trim_end().split_once(':'));
        let mut facts = Self {
            info: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            settings: read_settings(connection.clone()).await?,
            clock_ahead_ms: ahead_ms(time(&mut connection)).await?,
            has_older_format: false,
        };
        // A cluster refuses keys of several slots.
        if !facts.is_cluster() {
            let mut older = ::redis::cmd("EXISTS");
            older.arg(&keys.of_older_format());
            facts.has_older_format = older.query_async::<u64>(&mut connection).await? > 0;
        }
        Ok(facts)
    }

    /// Refuses a server that the store cannot work with. The records of an earlier build have other names: they would be
    /// absent, and their operations would run again.
    pub(super) fn demand_usable(&self, keys: &Keys) -> Result<(), RedisOpenError> {
        match () {
            () if self.is_cluster() => Err(RedisOpenError::Cluster),
            () if self.info("role") == "slave" => Err(RedisOpenError::Replica),
            () if self.is_too_old() => {
                Err(RedisOpenError::TooOld(self.info("redis_version").to_owned()))
            }
            () if self.has_older_format => Err(RedisOpenError::OlderFormat(keys.prefix.clone())),
            () => Ok(()),
        }
    }
}

/// Asks the Redis at `url`.
///
/// # Errors
/// If it cannot be reached, or refuses us.
pub async fn inspect(url: &str) -> Result<RedisFacts, RedisOpenError> {
    let client = Client::open(url).map_err(RedisOpenError::Address)?;
    let keys = Keys::new(&RedisOptions::new().prefix)?;
    let ask =
        async { RedisFacts::read(client.get_multiplexed_async_connection().await?, &keys).await };
    timeout(ANSWER_WAIT, ask).await.unwrap_or(Err(RedisOpenError::Silent(ANSWER_WAIT)))
}

/// Version 6.2 brought `CLIENT INFO`, which tells the address of a connection.
fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (6, 2)
}

/// Redis's own time.
pub(crate) async fn time(connection: &mut MultiplexedConnection) -> Result<StoreTime, RedisError> {
    let (seconds, micros): (i64, i64) = ::redis::cmd("TIME").query_async(connection).await?;
    Ok(StoreTime::from_ms(seconds.saturating_mul(1000).saturating_add(micros / 1000)))
}

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
