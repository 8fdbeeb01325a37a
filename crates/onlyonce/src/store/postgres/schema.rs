//! The tables, and how they came to be.
//!
//! 1. A schema has a `version`, and the `oldest` version of this library that may still use it.
//! 2. A migration only adds: tables, indexes, columns that are null or have a default. Statements name their columns.
//!    So the version before keeps working beside the new one, and `oldest` is the version less one.
//! 3. Rows have a `format`. A row of another format is unreadable to a build that does not know it, never absent, and
//!    no statement of that build changes it.
//! 4. A schema is made, and migrated, under a lock that belongs to its name, in one transaction. There is no migration
//!    yet: a version before this one was never released, and its schema is refused.

use serde_json::Value;
use tokio_postgres::{Client, Error};

use super::address::ServerAddress;
use super::connection::Line;
use super::error::PostgresOpenError;
use super::server::{is_pooled, json};
use super::statement::filled_in;

/// The version that this build makes and knows. 1: without targets and check values; 2: with a held clock and bins of
/// transactions; 3: without an audit trail; 4: without the transactional mode; 5: without recovery
/// points; 6: without the names of repeatable calls; 7: with CHECKs where the transactional mode has domains; 8: with functions
/// that looked for names in the search path of their caller. None of them was released.
pub(super) const VERSION: i64 = 9;

/// What to do about a schema that has no tables of ours.
pub(super) enum Missing {
    /// Make them.
    Make,
    /// Nothing: whoever only looks may have named another database by mistake.
    Refuse,
}

/// Looks whether the server and the schema are for us, before anything else uses them. Returns the id of the schema, and
/// what the server's owner should know.
pub(super) async fn enter(
    address: &ServerAddress,
    missing: Missing,
) -> Result<(String, Vec<String>), PostgresOpenError> {
    // Before a session is set up: the settings would stay with a session of the pooler, which gives it to others.
    let (line, other) = tokio::try_join!(Line::open(address, None), Line::open(address, None))?;
    let is_pooled = is_pooled(&line.client, &other.client).await;
    if is_pooled.map_err(|error| address.failed(error))? {
        return Err(PostgresOpenError::Pooled(address.name.clone()));
    }
    let mut connection = line.set_up(address, &[]).await?;
    let id = ensure(&mut connection.client, address, missing).await?;
    Ok((id, connection.server.warnings))
}

/// Returns the id of the schema, or why it is not for us. Of many nodes that make the tables at once, one does it.
pub(super) async fn ensure(
    client: &mut Client,
    address: &ServerAddress,
    missing: Missing,
) -> Result<String, PostgresOpenError> {
    let schema = address.schema.clone();
    let failed = |error| address.failed(error);
    match (is_made(client, &schema).await.map_err(failed)?, missing) {
        (true, _) => {}
        (false, Missing::Make) => make(client, &schema).await.map_err(failed)?,
        (false, Missing::Refuse) => return Err(PostgresOpenError::NotInstalled(schema)),
    }
    judge(&schema, json(client, &meta_sql(&schema)).await.map_err(failed)?)
}

/// Reads the schema's own row as JSON: that of another version may not have all columns.
pub(super) fn meta_sql(schema: &str) -> String {
    format!("SELECT to_jsonb(m) FROM {schema}.meta m WHERE one = 1")
}

/// The id of a schema, or why this build does not use it.
pub(super) fn judge(schema: &str, meta: Value) -> Result<String, PostgresOpenError> {
    let schema = schema.to_owned();
    if meta.is_null() {
        return Err(PostgresOpenError::Damaged(schema, "its own row is gone"));
    }
    let number = |name: &str| meta[name].as_i64().unwrap_or(0);
    let (found, oldest) = (number("version"), number("oldest"));
    let text = |name: &str| meta[name].as_str().map(str::to_owned);
    match (text("moved_to"), text("imported_from")) {
        _ if found < VERSION => Err(PostgresOpenError::Older(schema, found)),
        _ if oldest > VERSION => Err(PostgresOpenError::Newer(schema, found)),
        (Some(to), _) => Err(PostgresOpenError::Moved(schema, to)),
        (None, Some(from)) => Err(PostgresOpenError::Importing(schema, from)),
        (None, None) => Ok(text("generation").unwrap_or_default().replace('-', "")),
    }
}

async fn is_made(client: &Client, schema: &str) -> Result<bool, Error> {
    // Not `to_regclass`: it goes by a cache that may not know yet what was made while we waited.
    let exists = format!(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                         WHERE {NAMED} AND c.relname = 'meta')"
    );
    client.query_one_scalar(&exists, &[&schema]).await
}

async fn make(client: &mut Client, schema: &str) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction
        .batch_execute("SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '60s'")
        .await?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('onlyonce ' || $1, 0))";
    transaction.execute(lock, &[&schema]).await?;
    if !is_made(transaction.client(), schema).await? {
        let exists = format!("SELECT EXISTS (SELECT FROM pg_namespace n WHERE {NAMED})");
        if !transaction.client().query_one_scalar(&exists, &[&schema]).await? {
            transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        }
        transaction.batch_execute(&tables(schema)).await?;
    }
    transaction.commit().await
}

/// The namespace of a quoted name.
const NAMED: &str = r#"'"' || replace(n.nspname, '"', '""') || '"' = $1"#;

fn tables(schema: &str) -> String {
    let sql = concat!(
        include_str!("sql/schema.sql"),
        include_str!("sql/audit.sql"),
        include_str!("sql/transactions.sql"),
        include_str!("sql/steps.sql")
    );
    filled_in(&sql.replace("{version}", &VERSION.to_string()), schema)
}
