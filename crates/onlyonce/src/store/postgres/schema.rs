//! The tables, and how they came to be.
//!
//! 1. A schema has a `version`, and the `oldest` version of this library that may still use it.
//! 2. A migration only adds: tables, indexes, columns that are null or have a default. Statements name their
//!    columns, or take them in the order of the table, which every new connection checks. So the version
//!    before keeps working beside the new one, and `oldest` is the version less one.
//! 3. Rows have a `format`. A row of another format is unreadable to who does not know it, never absent, and
//!    no statement of theirs changes it.
//! 4. A schema is made under a lock that belongs to its name, in one transaction, and so are migrations. There is none
//!    yet: a version before this one was never released, and its schema is refused as it is.

use tokio_postgres::{Client, Error};

use super::sql::WALL;

/// The version that this build makes and knows. 1: without targets and check values, never released.
pub(super) const VERSION: i32 = 2;

/// What a schema says of itself.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) version: i32,
    pub(super) oldest: i32,
    pub(super) generation: String,
    pub(super) moved_to: Option<String>,
    pub(super) filled_from: Option<String>,
    pub(super) confirmed: i64,
    /// How far the clock is ahead of the last beat of any node.
    pub(super) ahead_ms: i64,
}

/// What is there.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    /// A store that has lost its own row.
    NoRow,
    /// A store of this version, which this build does not know any more.
    Older(i32),
    Meta(Meta),
}

/// Looks, and makes the tables if there is nothing. Of many that do so at once, one does it.
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
    if let older @ ..VERSION = row.try_get(0)? {
        return Ok(Found::Older(older));
    }
    read_meta(client, schema).await
}

async fn read_meta(client: &Client, schema: &str) -> Result<Found, Error> {
    let sql = format!(
        "SELECT version, oldest, replace(generation::text, '-', ''), moved_to, filled_from,
                confirmed, {WALL} - highest
           FROM {schema}.meta WHERE one = 1"
    );
    let Some(row) = client.query_opt(&sql, &[]).await? else {
        return Ok(Found::NoRow);
    };
    Ok(Found::Meta(Meta {
        version: row.try_get(0)?,
        oldest: row.try_get(1)?,
        generation: row.try_get(2)?,
        moved_to: row.try_get(3)?,
        filled_from: row.try_get(4)?,
        confirmed: row.try_get(5)?,
        ahead_ms: row.try_get(6)?,
    }))
}

async fn make(client: &mut Client, schema: &str) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute("SET LOCAL lock_timeout = '30s'").await?;
    transaction.batch_execute("SET LOCAL statement_timeout = '60s'").await?;
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

/// The tables of this version, which no version before it may use. The checks restate which columns a state has.
fn tables(schema: &str) -> String {
    format!(
        "CREATE TABLE {schema}.meta (
           one           smallint PRIMARY KEY CHECK (one = 1),
           version       integer NOT NULL,
           oldest        integer NOT NULL,
           generation    uuid NOT NULL,
           -- The highest time that any node has told, as of its last beat.
           highest       bigint NOT NULL,
           clock_held    boolean NOT NULL,
           -- How often someone has confirmed the clock.
           confirmed     bigint NOT NULL,
           -- A record that is running is in one of these bins or after them, unless it came from another server.
           running_from  bigint NOT NULL,
           running_early bigint[] NOT NULL,
           moved_to      text,
           -- The store whose records are being copied here. Nobody uses the schema until that is done.
           filled_from   text
         ) WITH (fillfactor = 10);
         CREATE TABLE {schema}.record (
           id                    uuid NOT NULL,
           token                 uuid NOT NULL,
           count                 bigint NOT NULL CHECK (count >= 1),
           first_claimed_at      bigint NOT NULL CHECK (first_claimed_at >= 0),
           lease_ms              bigint NOT NULL CHECK (lease_ms >= 1),
           quiet_ms              bigint NOT NULL CHECK (quiet_ms >= 0),
           ttl_ms                bigint NOT NULL CHECK (ttl_ms >= 0),
           lease_until           bigint CHECK (lease_until >= 0),
           unknown_since         bigint CHECK (unknown_since >= 0),
           expires_at            bigint CHECK (expires_at >= 0),
           taken_at              bigint CHECK (taken_at >= 0),
           -- The 64 transactions in one of which it was claimed, or moved up since.
           begun_bin             bigint NOT NULL,
           attempt               integer NOT NULL CHECK (attempt >= 1),
           -- The 65 seconds before which it cannot expire.
           expiry_bin            integer NOT NULL,
           -- 1 running, 2 unknown, 3 released, 4 completed.
           state                 smallint NOT NULL CHECK (state BETWEEN 1 AND 4),
           format                smallint NOT NULL DEFAULT 1 CHECK (format >= 1),
           taken_from            smallint CHECK (taken_from IN (2, 3)),
           settled_by            smallint CHECK (settled_by BETWEEN 1 AND 4),
           fingerprint_version   smallint NOT NULL CHECK (fingerprint_version BETWEEN 0 AND 255),
           fingerprint_canonical bytea NOT NULL CHECK (octet_length(fingerprint_canonical) = 32),
           fingerprint_raw       bytea NOT NULL CHECK (octet_length(fingerprint_raw) = 32),
           principal             bytea NOT NULL CHECK (octet_length(principal) = 32),
           key                   text NOT NULL,
           route                 text NOT NULL,
           head                  bytea,
           body                  bytea,
           target                text NOT NULL DEFAULT '',
           CONSTRAINT running_has_a_lease CHECK ((state = 1) = (lease_until IS NOT NULL)),
           CONSTRAINT unknown_has_a_since CHECK ((state = 2) = (unknown_since IS NOT NULL)),
           CONSTRAINT final_expires CHECK ((state IN (3, 4)) = (expires_at IS NOT NULL)),
           CONSTRAINT completed_has_a_response
             CHECK (CASE WHEN state = 4 THEN head IS NOT NULL AND settled_by IS NOT NULL
                         ELSE head IS NULL AND body IS NULL AND settled_by IS NULL END),
           CONSTRAINT taken_from_a_moment CHECK ((taken_from IS NULL) = (taken_at IS NULL))
         ) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
         ALTER TABLE {schema}.record ALTER body SET STORAGE EXTERNAL;
         CREATE UNIQUE INDEX record_id ON {schema}.record (id);
         -- A completion changes no column that an index names, so that it costs no entry in any of them. Bins, not
         -- milliseconds: many keys are one entry. No claim names them, so that no plan of a claim takes their index.
         CREATE INDEX record_begun ON {schema}.record (begun_bin);
         CREATE INDEX record_expiry ON {schema}.record (expiry_bin);
         CREATE INDEX record_unknown ON {schema}.record (id) WHERE unknown_since IS NOT NULL;
         CREATE TABLE {schema}.check_value (name text PRIMARY KEY, value text NOT NULL);
         INSERT INTO {schema}.meta
           VALUES (1, {VERSION}, {VERSION}, gen_random_uuid(), {WALL}, false, 0, 1, '{{}}', NULL, NULL);"
    )
}
