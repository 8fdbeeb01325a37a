//! The tables, and how they came to be.
//!
//! 1. A schema has a `version`, and the `oldest` version of this library that may still use it.
//! 2. A migration only adds: tables, indexes, columns that are null or have a default. Statements name their columns.
//!    So the version before keeps working beside the new one, and `oldest` is the version less one.
//! 3. Rows have a `format`. A row of another format is unreadable to a build that does not know it, never absent, and
//!    no statement of that build changes it.
//! 4. A schema is made, and migrated, under a lock that belongs to its name, in one transaction. There is no migration
//!    yet: a version before this one was never released, and its schema is refused.

use tokio_postgres::{Client, Error};

use super::statement::filled_in;

/// The version that this build makes and knows. 1: without targets and check values; 2: with a held clock and bins of
/// transactions. Neither was released.
pub(super) const VERSION: i32 = 3;

/// What a schema says of itself.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) version: i32,
    pub(super) oldest: i32,
    pub(super) generation: String,
    pub(super) moved_to: Option<String>,
    pub(super) imported_from: Option<String>,
}

/// What is there.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    /// A store that has lost the row in `meta`.
    NoRow,
    /// A store of this version, which this build does not know any more.
    Older(i32),
    Meta(Meta),
}

/// Looks, and makes the tables if there is nothing. Of many nodes that do so at once, one does it.
pub(super) async fn ensure(client: &mut Client, schema: &str) -> Result<Found, Error> {
    match read(client, schema).await? {
        Found::Nothing => {}
        found => return Ok(found),
    }
    make(client, schema).await?;
    read(client, schema).await
}

async fn read(client: &Client, schema: &str) -> Result<Found, Error> {
    // Not `to_regclass`: it goes by a cache that may not know yet what was made while we waited.
    let exists = format!(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                         WHERE {NAMED} AND c.relname = 'meta')"
    );
    if !client.query_one_scalar(&exists, &[&schema]).await? {
        return Ok(Found::Nothing);
    }
    // Alone: an older version may not have the other columns.
    let version = format!("SELECT version FROM {schema}.meta WHERE one = 1");
    let Some(row) = client.query_opt(&version, &[]).await? else {
        return Ok(Found::NoRow);
    };
    if let older @ ..VERSION = row.try_get("version")? {
        return Ok(Found::Older(older));
    }
    read_meta(client, schema).await
}

async fn read_meta(client: &Client, schema: &str) -> Result<Found, Error> {
    let sql = format!(
        "SELECT version, oldest, replace(generation::text, '-', '') AS generation, moved_to, imported_from
           FROM {schema}.meta WHERE one = 1"
    );
    let Some(row) = client.query_opt(&sql, &[]).await? else {
        return Ok(Found::NoRow);
    };
    Ok(Found::Meta(Meta {
        version: row.try_get("version")?,
        oldest: row.try_get("oldest")?,
        generation: row.try_get("generation")?,
        moved_to: row.try_get("moved_to")?,
        imported_from: row.try_get("imported_from")?,
    }))
}

async fn make(client: &mut Client, schema: &str) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction
        .batch_execute("SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '60s'")
        .await?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('onlyonce ' || $1, 0))";
    transaction.execute(lock, &[&schema]).await?;
    if let Found::Nothing = read(transaction.client(), schema).await? {
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
    let sql = include_str!("sql/schema.sql").replace("{version}", &VERSION.to_string());
    filled_in(&sql, schema)
}
