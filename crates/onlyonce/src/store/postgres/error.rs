//! Why a store could not be opened, and what to do about it.

use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::schema::VERSION;
use crate::store::BoxError;

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresOpenError {
    /// Not an address. Give one like `postgres://user@host/database`.
    #[error("not the address of a Postgres database ({0}): give postgres://user@host/database")]
    BadUrl(String),
    /// Sessions of other stores are connected. End them first.
    #[error("{0} is in use by {1} sessions of gateways: stop them first")]
    InUse(String, i64),
    /// Not the name of a schema. Give another.
    #[error("{0:?} cannot name a schema: give 1 to 63 bytes that do not begin with pg_")]
    BadSchema(String),
    /// The connection cannot be encrypted as asked. Check `sslmode` and `sslrootcert`.
    #[error(
        "the connection to the server cannot be encrypted as asked: check sslmode and sslrootcert"
    )]
    Tls(#[source] BoxError),
    /// The server does not offer TLS, and `sslmode` asks for it. Turn `ssl` on in the server, or change `sslmode`.
    #[error(
        "{0} does not offer TLS, and sslmode asks for it: set ssl = on in the server, or give sslmode=disable"
    )]
    NoTls(String),
    /// Nobody answers at this server and database. Start the server, or give another address.
    #[error("{0} cannot be reached: is the server running, and is this its address?")]
    Unreachable(String, #[source] BoxError),
    /// The server does not know this user or this password. Correct them.
    #[error("{0} refuses this user or password")]
    WrongPassword(String, #[source] BoxError),
    /// There is no such database. Make it first.
    #[error("{0} does not exist: make the database first")]
    NoDatabase(String),
    /// Onlyonce has no tables in this schema. Name the database of your service, or run
    /// `onlyonce migrate --to postgres://…`.
    #[error(
        "this database has no tables of onlyonce in the schema {0}: is it the right one? `onlyonce migrate --to` makes them"
    )]
    NotInstalled(String),
    /// This user may not, in this database and schema. Let it make the schema, or make the schema for it and give it to
    /// that user.
    #[error("no permission in {0}: this user must own the schema {1}, or be allowed to make it")]
    NoPermission(String, String, #[source] BoxError),
    /// It follows another server and takes no writes. Give the address of the primary; an address may list
    /// several hosts with `target_session_attrs=read-write`.
    #[error("{0} is a standby: records are read from and written to the primary only")]
    Standby(String),
    /// The server has this version, which is too old. Upgrade it.
    #[error("{0} runs Postgres {1}, and at least {SERVER_MIN} is needed: upgrade the server")]
    TooOld(String, i64),
    /// A setting that the promise rests on is not in force. Correct it and restart the server.
    #[error(
        "{0} is not durable: fsync is off; set it to on, or keys are forgotten when the machine fails"
    )]
    NotDurable(String),
    /// A pooler between us hands every transaction to another session. Connect past it, or through one in
    /// session mode.
    #[error(
        "{0} is behind a pooler in transaction mode: connect to the server itself, or use session mode"
    )]
    Pooled(String),
    /// A newer version has written this schema, of this version. Run that version, or a newer one.
    #[error(
        "schema {0} has version {1}, and this build knows up to {VERSION}: run the newer version"
    )]
    Newer(String, i64),
    /// A build that was never released has written this schema, of this version. Use a new schema; nothing was changed in
    /// this one.
    #[error(
        "schema {0} has version {1} of an unreleased build, which this build does not read: use a new one, as in ?schema=NAME. Retries of keys in the old one will be executed again"
    )]
    Older(String, i64),
    /// The records of this schema are kept elsewhere now. Open that one.
    #[error("schema {0} was moved to {1}: open that one")]
    Moved(String, String),
    /// The records of another store are being copied to this schema. Wait for the end of that; if it was interrupted,
    /// repeat it.
    #[error(
        "schema {0} is being filled from {1}: wait for the end of that migration, or repeat it if it was interrupted"
    )]
    Importing(String, String),
    /// It has records of its own, and another store's cannot be copied there. Give another schema.
    #[error("schema {0} has records already: give one that is empty, as in ?schema=NAME")]
    NotEmpty(String),
    /// This schema is there, and is not what was made. Restore it from a backup; nothing was changed.
    #[error("schema {0} is damaged ({1}): restore it from a backup")]
    Damaged(String, &'static str),
    /// The server refused. Its own words say why.
    #[error("{0} cannot be opened")]
    Server(String, #[source] BoxError),
    /// The system gives no thread for the connections.
    #[error("the system gives no thread")]
    Thread(#[source] io::Error),
}

impl PostgresOpenError {
    /// What the client said of `address`.
    pub(super) fn from_client(address: &str, schema: &str, error: Error) -> Self {
        let address = address.to_owned();
        let Some(code) = error.code().cloned() else {
            return Self::without_answer(address, error);
        };
        let source = error.into();
        match code {
            SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                Self::WrongPassword(address, source)
            }
            SqlState::INVALID_CATALOG_NAME => Self::NoDatabase(address),
            SqlState::INSUFFICIENT_PRIVILEGE => {
                Self::NoPermission(address, schema.to_owned(), source)
            }
            SqlState::READ_ONLY_SQL_TRANSACTION => Self::Standby(address),
            SqlState::CANNOT_CONNECT_NOW => Self::Unreachable(address, source),
            SqlState::UNDEFINED_COLUMN | SqlState::UNDEFINED_TABLE => {
                Self::Damaged(schema.to_owned(), "a table or a column is not there")
            }
            _ => Self::Server(address, source),
        }
    }

    /// The client tells its own failures apart by their texts alone.
    fn without_answer(address: String, error: Error) -> Self {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        match (error.to_string().as_str(), cause.as_deref()) {
            (_, Some("server does not support TLS")) => Self::NoTls(address),
            (text, _) if text.starts_with("error performing TLS handshake") => {
                Self::Tls(error.into())
            }
            _ => Self::Unreachable(address, error.into()),
        }
    }
}

/// The oldest server that is supported, as `server_version_num` counts.
pub(super) const SERVER_MIN: i64 = 140_000;
