//! Why a store in Redis could not be opened, and what to do about it.

use std::time::Duration;

/// Why a store in Redis could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address does not read. Write `redis://[user:password@]host[:port][/database]`.
    #[error("this is not an address of a Redis: write redis://host:port")]
    Address(#[source] ::redis::RedisError),
    /// The prefix does not read. Use letters, digits and `_ - . :`.
    #[error("the prefix {prefix:?} is not 1 to 64 letters, digits and _ - . :")]
    Prefix {
        /// What was given.
        prefix: String,
    },
    /// Nobody answers there, or not with what a Redis says. Start it, or give its right address and password.
    #[error(
        "Redis cannot be reached, or refuses us: start it, or correct its address and password"
    )]
    Unreachable(#[source] ::redis::RedisError),
    /// It took too long. Look at what it is doing, or at the network before it.
    #[error("Redis gave no answer within {within:?}")]
    Silent {
        /// How long was waited.
        within: Duration,
    },
    /// It is a replica. Give the address of the primary.
    #[error("this Redis is a replica: give the address of the primary")]
    Replica,
    /// It is older than what our scripts need. Upgrade it.
    #[error("this Redis is version {found}, and 6.2 or later is needed: upgrade it")]
    TooOld {
        /// Its version.
        found: String,
    },
    /// It is a cluster, which is not supported yet. Use a Redis with one primary.
    #[error("this Redis is a cluster, which is not supported yet: use one with a single primary")]
    Cluster,
    /// The system gives no thread. Its own words say why.
    #[error("no thread for the connection to Redis")]
    Thread(#[source] std::io::Error),
}
