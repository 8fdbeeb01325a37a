//! What a crash of this Redis would forget, by its configuration.

use std::collections::BTreeMap;
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
    pub(super) settings: Option<Settings>,
}

/// What `CONFIG GET` says.
pub(super) type Settings = BTreeMap<String, String>;

/// Reads the settings that a store rests on; `None` if the server does not let us.
pub(super) async fn read_settings(
    mut connection: MultiplexedConnection,
) -> Result<Option<Settings>, RedisOpenError> {
    let mut read = ::redis::pipe();
    for name in SETTINGS {
        read.cmd("CONFIG").arg("GET").arg(name);
    }
    let read: Result<Vec<Settings>, RedisError> = read.query_async(&mut connection).await;
    Ok(if_allowed(read)?.map(|named| named.into_iter().flatten().collect()))
}

impl Promise {
    /// Whether every answered write survives a crash of Redis, and nothing is evicted: `appendonly yes`,
    /// `appendfsync always`, `no-appendfsync-on-rewrite no`, `maxmemory-policy noeviction`.
    pub fn is_durable(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| {
            setting(settings, "appendonly") == "yes"
                && setting(settings, "appendfsync") == "always"
                && syncs_while_rewriting(settings)
                && setting(settings, "maxmemory-policy") == "noeviction"
        })
    }
}

/// What a crash forgets.
fn after_crash(settings: &Settings) -> &'static str {
    match (setting(settings, "appendonly"), setting(settings, "appendfsync")) {
        ("yes", "always") if !syncs_while_rewriting(settings) => {
            "best effort: while Redis rewrites its file or saves a snapshot it syncs nothing (no-appendfsync-on-rewrite); a crash of Redis's machine forgets what it answered meanwhile, and what it forgets may run again"
        }
        ("yes", "always") => {
            "Redis writes each change to disk before it answers; a failover to a replica may still forget some"
        }
        ("yes", "everysec") => {
            "best effort: a crash of Redis forgets about the last second (appendfsync everysec), and what it forgets may run again"
        }
        ("yes", _) => {
            "best effort: a crash of Redis's machine forgets the last half minute or more (appendfsync no), and what it forgets may run again"
        }
        _ if setting(settings, "save").is_empty() => {
            "best effort: Redis keeps nothing on disk (appendonly no, no save), and after a restart everything may run again"
        }
        _ => {
            "best effort: a crash of Redis forgets everything since its last snapshot (appendonly no), and what it forgets may run again"
        }
    }
}

/// Otherwise it syncs nothing while it has a child that writes: that of a rewrite, or of a snapshot.
fn syncs_while_rewriting(settings: &Settings) -> bool {
    setting(settings, "no-appendfsync-on-rewrite") == "no"
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(settings) = &self.settings else {
            return f.write_str(
                "best effort: Redis does not let us read its configuration, so nobody knows what a crash forgets; ask for appendonly yes, appendfsync always and maxmemory-policy noeviction",
            );
        };
        f.write_str(after_crash(settings))?;
        let evicts = match setting(settings, "maxmemory") {
            "0" => "once maxmemory is set it evicts keys",
            _ => "it evicts keys when memory is short",
        };
        match setting(settings, "maxmemory-policy") {
            "noeviction" => Ok(()),
            policy => write!(f, "; {evicts} ({policy}), and those may run again"),
        }
    }
}

fn setting<'a>(settings: &'a Settings, name: &str) -> &'a str {
    settings.get(name).map_or("", String::as_str)
}

const SETTINGS: [&str; 6] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory",
    "maxmemory-policy",
    "save",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_strictest_configuration_is_durable() {
        let promise = |appendonly: &str, appendfsync: &str, no_sync: &str, policy: &str| {
            let settings = [
                ("appendonly", appendonly),
                ("appendfsync", appendfsync),
                ("no-appendfsync-on-rewrite", no_sync),
                ("maxmemory", "0"),
                ("maxmemory-policy", policy),
                ("save", ""),
            ];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Promise { settings: Some(settings.into()) }
        };
        assert!(promise("yes", "always", "no", "noeviction").is_durable());
        for worse in [
            promise("no", "always", "no", "noeviction"),
            promise("yes", "everysec", "no", "noeviction"),
            promise("yes", "always", "yes", "noeviction"),
            promise("yes", "always", "no", "allkeys-lru"),
        ] {
            assert!(!worse.is_durable(), "{worse:?}");
            assert!(worse.to_string().contains("may run again"));
        }
        assert!(!Promise::default().is_durable());
    }
}
