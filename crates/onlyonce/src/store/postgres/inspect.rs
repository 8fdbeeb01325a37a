//! Asks a server how it is set up, and looks at our schema: nothing is made, changed or locked.
//!
//! Only simple queries: they also work through a pooler that the store itself refuses.

use serde_json::Value;
use tokio::time::timeout;
use tokio_postgres::{Client, Error};

use super::address::ServerAddress;
use super::connection::CONNECT_WAIT_MAX;
use super::error::{PostgresOpenError, SERVER_MIN};
use super::schema::{judge, meta_sql};
use super::server::{apart, is_pooled, json};
use crate::clock::{StoreTime, ahead_ms};

/// What a server says of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresFacts {
    /// Server and database.
    pub address: String,
    /// As `server_version_num` counts.
    pub version: i64,
    /// Whether it follows another server.
    pub is_standby: bool,
    settings: Value,
    /// The standbys that are connected, and how many of them are synchronous; `None` if this user may not see that.
    pub standbys: (i64, Option<i64>),
    /// The connections that this user may still open in this database.
    pub connections_free: i64,
    /// The connections of gateways.
    pub connections_ours: i64,
    /// The age of the oldest transaction id in this database. At two thousand million the server stops writing.
    pub transaction_age: i64,
    /// How far its clock is ahead of this node's, in milliseconds; negative if it is behind.
    pub clock_ahead_ms: i64,
    /// Whether statements of one connection run in several sessions: a pooler in transaction mode.
    pub is_pooled: bool,
    /// Whether the connection is encrypted without a check of who answers.
    pub is_unverified: bool,
    /// What is in the schema.
    pub schema: SchemaFound,
}

/// What is in the schema of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaFound {
    /// Nothing; `may_make` says whether this user may make it.
    Nothing {
        /// Whether this user may make it.
        may_make: bool,
    },
    /// Something that this build does not use. The sentence says why.
    Refused(String),
    /// Our tables.
    Ours {
        /// Whether the records survive a crash: an unlogged table is emptied by one.
        is_logged: bool,
        /// Whether a valid unique index keeps two records of one id apart.
        is_unique: bool,
        /// Whether the table itself turns autovacuum off.
        is_vacuumed: bool,
    },
}

impl PostgresFacts {
    /// A setting, as a new session of this user has it.
    pub fn setting(&self, name: &str) -> &str {
        self.settings[name].as_str().unwrap_or_default()
    }

    /// Whether it is older than the oldest version that the store works with.
    pub fn is_too_old(&self) -> bool {
        self.version < SERVER_MIN
    }
}

/// Asks the server at `url`, an address as [`PostgresStore::open`](super::PostgresStore::open) takes it.
///
/// # Errors
/// If it cannot be reached, or refuses us.
pub async fn inspect(url: &str) -> Result<PostgresFacts, PostgresOpenError> {
    let mut address = ServerAddress::parse(url, None)?;
    address.config.application_name("onlyonce doctor");
    let read = timeout(CONNECT_WAIT_MAX * 2, read(&address)).await;
    read.map_err(|elapsed| address.silent(elapsed))?.map_err(|error| address.failed(error))
}

async fn read(address: &ServerAddress) -> Result<PostgresFacts, Error> {
    let (client, other) = (connect(address).await?, connect(address).await?);
    let mut about = Value::Null;
    let asked = async {
        about = json(&client, &apart(include_str!("sql/about.sql"))).await?;
        Ok(StoreTime::from_ms(about["now_ms"].as_i64().unwrap_or(0)))
    };
    let clock_ahead_ms = ahead_ms(asked).await?;
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let standbys = &about["standbys"];
    let sees_all = standbys["all"] == standbys["shown"];
    Ok(PostgresFacts {
        address: address.name.clone(),
        version: number(&about["version"]),
        is_standby: about["is_standby"] == true,
        standbys: (number(&standbys["all"]), sees_all.then(|| number(&standbys["synchronous"]))),
        connections_free: number(&about["free"]),
        connections_ours: number(&about["ours"]),
        transaction_age: number(&about["age"]),
        clock_ahead_ms,
        is_pooled: is_pooled(&client, &other).await?,
        is_unverified: address.is_unverified && about["is_encrypted"] == true,
        schema: schema(&client, &address.schema).await?,
        settings: about["settings"].take(),
    })
}

async fn connect(address: &ServerAddress) -> Result<Client, Error> {
    let (client, connection) = address.config.connect(address.tls.clone()).await?;
    // It ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

async fn schema(client: &Client, schema: &str) -> Result<SchemaFound, Error> {
    let literal = format!("'{}'", schema.replace('\'', "''"));
    let sql = include_str!("sql/tables.sql").replace("{schema}", &literal);
    let found = json(client, &apart(&sql)).await?;
    let (meta, record) = (&found["tables"]["meta"], &found["tables"]["record"]);
    if meta.is_null() {
        return Ok(SchemaFound::Nothing { may_make: found["may_make"] == true });
    }
    if found["may_use"] != true {
        return Ok(SchemaFound::Refused(format!("this user may not use the schema {schema}")));
    }
    let its_row = json(client, &apart(&meta_sql(schema))).await?;
    Ok(match judge(schema, its_row) {
        Err(refused) => SchemaFound::Refused(refused.to_string()),
        Ok(_) if record.is_null() => {
            SchemaFound::Refused(format!("schema {schema} is damaged: it has no table record"))
        }
        Ok(_) => SchemaFound::Ours {
            is_logged: record["persistence"] == "p",
            is_unique: record["is_unique"] == true,
            is_vacuumed: !record["options"].to_string().contains("autovacuum_enabled=false"),
        },
    })
}
