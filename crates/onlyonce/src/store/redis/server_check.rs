//! Refuses a server, or a database, that the store cannot work with.

use ::redis::InfoDict;
use ::redis::aio::MultiplexedConnection;

use super::error::OpenError;
use super::keys::Keys;

pub(super) async fn check(
    mut connection: MultiplexedConnection,
    keys: &Keys,
) -> Result<(), OpenError> {
    let info = ::redis::cmd("INFO").query_async::<InfoDict>(&mut connection).await;
    let info = info.map_err(OpenError::Unreachable)?;
    let field = |name: &str| info.get::<String>(name).unwrap_or_default();
    if field("cluster_enabled") == "1" {
        return Err(OpenError::Cluster);
    }
    if field("role") == "slave" {
        return Err(OpenError::Replica);
    }
    let found = field("redis_version");
    if is_too_old(&found) {
        return Err(OpenError::TooOld { found });
    }
    refuse_older_format(connection, keys).await
}

/// Its records have other names. To this build they would be absent, and their operations would run again.
async fn refuse_older_format(
    mut connection: MultiplexedConnection,
    keys: &Keys,
) -> Result<(), OpenError> {
    let mut exists = ::redis::cmd("EXISTS");
    exists.arg(&keys.of_older_format());
    match exists.query_async::<u64>(&mut connection).await {
        Ok(0) => Ok(()),
        Ok(_) => Err(OpenError::OlderFormat { prefix: keys.prefix().to_owned() }),
        Err(error) => Err(OpenError::Unreachable(error)),
    }
}

/// Version 6.2 brought `CLIENT INFO`, which tells the address of a connection.
fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (6, 2)
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
