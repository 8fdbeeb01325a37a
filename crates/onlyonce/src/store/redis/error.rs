//! Why a store in Redis could not be opened, and what to do about it.

use std::time::Duration;

use ::redis::RedisError;

/// Why a store in Redis could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisOpenError {
    /// The address does not read. Write `redis://[user:password@]host[:port][/database]`.
    #[error("this is not an address of a Redis: write redis://host:port")]
    Address(#[source] RedisError),
    /// This prefix does not read. Use letters, digits and `_ - . :`.
    #[error("the prefix {0:?} is not 1 to 64 letters, digits and _ - . :")]
    Prefix(String),
    /// Nothing answers there, or something that is not a Redis. Start it, or give its right address and password.
    #[error(
        "Redis cannot be reached, or refuses us: start it, or correct its address and password"
    )]
    Unreachable(#[from] RedisError),
    /// It took longer than this. Look at its log, or at the network before it.
    #[error("Redis gave no answer within {0:?}")]
    Silent(Duration),
    /// It is a replica. Give the address of the primary.
    #[error("this Redis is a replica: give the address of the primary")]
    Replica,
    /// It has this version, which is older than 6.2. Upgrade it.
    #[error("this Redis is version {0}, and 6.2 or later is needed: upgrade it")]
    TooOld(String),
    /// It is a cluster, which is not supported. Use a Redis with one primary.
    #[error("this Redis is a cluster, which is not supported: use one with a single primary")]
    Cluster,
    /// A build before the first release has written the keys under this prefix, in another format. Use another prefix or an
    /// empty database; or delete its keys, once no retry of an operation in it can come any more.
    #[error(
        "the keys under {0}: in this Redis have the format of an earlier build, which this one does not read: use another database of it, or delete them once no retry of their operations can come any more"
    )]
    OlderFormat(String),
    /// The operating system gives no thread. The source says why.
    #[error("no thread for the connection to Redis")]
    Thread(#[source] std::io::Error),
}

/// The answer to a command that a server may forbid us; `None` if it does.
pub(super) fn if_allowed<T>(answer: Result<T, RedisError>) -> Result<Option<T>, RedisOpenError> {
    match answer {
        Err(error) if error.code().is_some() => Ok(None),
        answer => Ok(Some(answer?)),
    }
}
