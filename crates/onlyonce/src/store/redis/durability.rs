//! What a crash of this Redis would forget, by its configuration.

use std::fmt;

use ::redis::RedisError;
use ::redis::aio::MultiplexedConnection;

use super::error::{RedisOpenError, if_allowed};

/// What a store in this Redis can promise. Its text is one line for a log or a page.
///
/// The best of them is less than a database promises: a failover to a replica may lose answered writes, because
/// Redis answers before its replicas have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// `None` if the server does not let us read them.
    settings: Option<Settings>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    appendonly: String,
    appendfsync: String,
    maxmemory: String,
    maxmemory_policy: String,
    save: String,
}

impl Promise {
    /// Whether every answered write survives a crash of Redis, and nothing is evicted: `appendonly yes`,
    /// `appendfsync always`, `maxmemory-policy noeviction`.
    pub fn is_durable(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| {
            settings.appendonly == "yes"
                && settings.appendfsync == "always"
                && settings.maxmemory_policy == "noeviction"
        })
    }

    /// Reads the configuration of the server. If it refuses to tell a setting, nothing is promised.
    pub(super) async fn read(connection: MultiplexedConnection) -> Result<Self, RedisOpenError> {
        Ok(Self { settings: if_allowed(Settings::read(connection).await)? })
    }
}

impl Settings {
    async fn read(mut connection: MultiplexedConnection) -> Result<Self, RedisError> {
        let mut read = ::redis::pipe();
        for name in ["appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "save"] {
            read.cmd("CONFIG").arg("GET").arg(name);
        }
        let pairs: Vec<Vec<String>> = read.query_async(&mut connection).await?;
        let mut values = pairs.into_iter().map(|pair| pair.into_iter().nth(1).unwrap_or_default());
        let mut next = || values.next().unwrap_or_default();
        let (appendonly, appendfsync) = (next(), next());
        let (maxmemory, maxmemory_policy, save) = (next(), next(), next());
        Ok(Self { appendonly, appendfsync, maxmemory, maxmemory_policy, save })
    }

    /// What a crash forgets.
    fn after_crash(&self) -> &'static str {
        match (self.appendonly.as_str(), self.appendfsync.as_str()) {
            ("yes", "always") => {
                "Redis writes each change to disk before it answers; a failover to a replica may still forget some"
            }
            ("yes", "everysec") => {
                "best effort: a crash of Redis forgets about the last second (appendfsync everysec), and what it forgets may run again"
            }
            ("yes", _) => {
                "best effort: a crash of Redis's machine forgets the last half minute or more (appendfsync no), and what it forgets may run again"
            }
            _ if self.save.is_empty() => {
                "best effort: Redis keeps nothing on disk (appendonly no, no save), and after a restart everything may run again"
            }
            _ => {
                "best effort: a crash of Redis forgets everything since its last snapshot (appendonly no), and what it forgets may run again"
            }
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(settings) = &self.settings else {
            return f.write_str(
                "best effort: Redis does not let us read its configuration, so nobody knows what a crash forgets; ask for appendonly yes, appendfsync always and maxmemory-policy noeviction",
            );
        };
        f.write_str(settings.after_crash())?;
        let evicts = match settings.maxmemory.as_str() {
            "0" => "once maxmemory is set it evicts keys",
            _ => "it evicts keys when memory is short",
        };
        match settings.maxmemory_policy.as_str() {
            "noeviction" => Ok(()),
            policy => write!(f, "; {evicts} ({policy}), and those may run again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_strictest_configuration_is_durable() {
        let best = Settings {
            appendonly: "yes".to_owned(),
            appendfsync: "always".to_owned(),
            maxmemory: "0".to_owned(),
            maxmemory_policy: "noeviction".to_owned(),
            save: String::new(),
        };
        let promise = |settings| Promise { settings: Some(settings) };
        assert!(promise(best.clone()).is_durable());
        for worse in [
            Settings { appendonly: "no".to_owned(), ..best.clone() },
            Settings { appendfsync: "everysec".to_owned(), ..best.clone() },
            Settings { maxmemory_policy: "allkeys-lru".to_owned(), ..best },
        ] {
            assert!(!promise(worse.clone()).is_durable(), "{worse:?}");
            assert!(promise(worse).to_string().contains("may run again"));
        }
        assert!(!Promise::default().is_durable());
    }
}
