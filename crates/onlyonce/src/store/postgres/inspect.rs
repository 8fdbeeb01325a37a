//! Asks a server how it is set up, and looks at our schema: nothing is made, changed or locked.
//!
//! Only simple queries: they also work through a pooler that the store itself refuses.

use std::collections::BTreeMap;

use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

use super::address::ServerAddress;
use super::connection::CONNECT_WAIT_MAX;
use super::error::{PostgresOpenError, SERVER_MIN};
use super::schema::{judge, meta_sql};
use super::server::is_pooled;
use crate::clock::{Clock, StoreTime, SystemClock};

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
    settings: BTreeMap<String, String>,
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
        self.settings.get(name).map_or("", String::as_str)
    }

    /// Whether it is older than the oldest version that the store works with.
    pub fn is_too_old(&self) -> bool {
        self.version < i64::from(SERVER_MIN)
    }
}

/// Asks the server at `url`, an address as [`PostgresStore::open`](super::PostgresStore::open) takes it.
///
/// # Errors
/// If it cannot be reached, or refuses us.
pub async fn inspect(url: &str) -> Result<PostgresFacts, PostgresOpenError> {
    let mut address = ServerAddress::parse(url, None)?;
    address.config.application_name(NAME);
    let asked = timeout(CONNECT_WAIT_MAX * 2, ask(&address)).await;
    asked.unwrap_or_else(|elapsed| {
        let source = elapsed.into();
        Err(PostgresOpenError::Unreachable { address: address.name.clone(), source })
    })
}

async fn ask(address: &ServerAddress) -> Result<PostgresFacts, PostgresOpenError> {
    let failed = |error| PostgresOpenError::from_client(&address.name, &address.schema, error);
    let client = connect(address).await.map_err(failed)?;
    read(&client, address).await.map_err(failed)
}

async fn connect(address: &ServerAddress) -> Result<Client, Error> {
    let (client, connection) = address.config.connect(address.tls.clone()).await?;
    // It ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

async fn read(client: &Client, address: &ServerAddress) -> Result<PostgresFacts, Error> {
    let about = one(client, ABOUT).await?;
    let standbys = one(client, STANDBYS).await?;
    let sees_all = standbys.text("all") == standbys.text("shown");
    Ok(PostgresFacts {
        address: address.name.clone(),
        version: about.number("version"),
        is_standby: about.text("is_standby") == "t",
        settings: settings(client).await?,
        standbys: (standbys.number("all"), sees_all.then(|| standbys.number("synchronous"))),
        connections_free: about.number("free"),
        connections_ours: about.number("ours"),
        transaction_age: about.number("age"),
        clock_ahead_ms: clock_ahead_ms(client).await?,
        is_pooled: is_pooled(client, &connect(address).await?).await?,
        is_unverified: address.is_unverified && about.text("ssl") == "t",
        schema: schema(client, &address.schema).await?,
    })
}

async fn settings(client: &Client) -> Result<BTreeMap<String, String>, Error> {
    let rows = rows(client, SETTINGS).await?;
    Ok(rows
        .iter()
        .map(|row| (row.text("name").to_owned(), row.text("setting").to_owned()))
        .collect())
}

/// Against the middle of the time between question and answer.
async fn clock_ahead_ms(client: &Client) -> Result<i64, Error> {
    let before = SystemClock.wall();
    let row = one(client, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now");
    let its = StoreTime::from_ms(row.await?.number("now"));
    let middle = before.plus_ms(SystemClock.wall().since_ms(before) / 2);
    Ok(its.since_ms(middle))
}

async fn schema(client: &Client, schema: &str) -> Result<SchemaFound, Error> {
    let found = one(client, &SCHEMA.replace("{schema}", &literal(schema))).await?;
    if found.text("has_meta") != "t" {
        return Ok(SchemaFound::Nothing { may_make: found.text("may_make") == "t" });
    }
    if found.text("may_use") != "t" {
        return Ok(SchemaFound::Refused(format!("this user may not use the schema {schema}")));
    }
    let meta = rows(client, &meta_sql(schema)).await?;
    if let Err(refused) = judge(schema, meta.first().map(|row| row.text("meta"))) {
        return Ok(SchemaFound::Refused(refused.to_string()));
    }
    if found.text("has_record") != "t" {
        return Ok(SchemaFound::Refused(format!(
            "schema {schema} is damaged: it has no table record"
        )));
    }
    let table =
        one(client, &TABLE.replace("{table}", &literal(&format!("{schema}.record")))).await?;
    Ok(SchemaFound::Ours {
        is_logged: table.text("persistence") == "p",
        is_unique: table.number("uniques") > 0,
        is_vacuumed: !table.text("options").contains("autovacuum_enabled=false"),
    })
}

async fn rows(client: &Client, sql: &str) -> Result<Vec<SimpleQueryRow>, Error> {
    let messages = client.simple_query(sql).await?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}

/// The only row of a statement that always answers one.
async fn one(client: &Client, sql: &str) -> Result<SimpleQueryRow, Error> {
    Ok(rows(client, sql)
        .await?
        .pop()
        .expect("a SELECT without FROM, or of an aggregate, has a row"))
}

/// The columns of a row; what is null reads as empty.
trait Columns {
    fn text(&self, name: &str) -> &str;

    fn number(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }
}

impl Columns for SimpleQueryRow {
    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

const NAME: &str = "onlyonce doctor";
const ABOUT: &str = "
    SELECT current_setting('server_version_num') AS version, pg_is_in_recovery() AS is_standby,
           (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()) AS age,
           (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS ssl,
           (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onlyonce') AS ours,
           least(
             current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
               - (SELECT count(*) FROM pg_stat_activity
                   WHERE datname IS NOT NULL AND application_name IS DISTINCT FROM 'onlyonce doctor'),
             (SELECT nullif(datconnlimit, -1) - (SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name IS DISTINCT FROM 'onlyonce doctor')
                FROM pg_database WHERE datname = current_database()),
             (SELECT nullif(rolconnlimit, -1) - (SELECT count(*) FROM pg_stat_activity
                   WHERE usename = current_user AND application_name IS DISTINCT FROM 'onlyonce doctor')
                FROM pg_roles WHERE rolname = current_user)) AS free";
const STANDBYS: &str = "
    SELECT count(*) AS all, count(sync_state) AS shown,
           count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous FROM pg_stat_replication";
const SETTINGS: &str = "
    SELECT name, setting FROM pg_settings WHERE name IN
      ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'synchronous_standby_names', 'autovacuum',
       'track_counts', 'max_connections', 'zero_damaged_pages', 'ignore_checksum_failure')";
/// `{schema}` is a literal of the quoted name.
const SCHEMA: &str = r#"
    SELECT coalesce(bool_or(c.relname = 'meta'), false) AS has_meta,
           coalesce(bool_or(c.relname = 'record'), false) AS has_record,
           coalesce(bool_or(has_schema_privilege(n.oid, 'USAGE')), false) AS may_use,
           coalesce(bool_or(has_schema_privilege(n.oid, 'CREATE')),
                    has_database_privilege(current_database(), 'CREATE')) AS may_make
      FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind = 'r'
     WHERE '"' || replace(n.nspname, '"', '""') || '"' = {schema}"#;
const TABLE: &str = "
    SELECT c.relpersistence AS persistence, c.reloptions::text AS options,
           (SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
             WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
               AND i.indnkeyatts = 1 AND a.attname = 'id') AS uniques
      FROM pg_class c WHERE c.oid = {table}::regclass";
