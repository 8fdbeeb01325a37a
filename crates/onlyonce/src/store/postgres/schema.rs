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

use super::columns::{COMPLETED, FORMAT, RELEASED, RUNNING, UNKNOWN};

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

/// The tables of this version, which no version before it may use. The checks restate which columns a state has.
fn tables(schema: &str) -> String {
    format!(
        "CREATE TABLE {schema}.meta (
           one           smallint PRIMARY KEY CHECK (one = 1),
           version       integer NOT NULL,
           oldest        integer NOT NULL,
           generation    uuid NOT NULL,
           moved_to      text,
           -- The store whose records are being copied here. Nobody uses the schema until that is done.
           imported_from text
         );
         INSERT INTO {schema}.meta VALUES (1, {VERSION}, {VERSION}, gen_random_uuid(), NULL, NULL);
         CREATE TABLE {schema}.check_value (name text PRIMARY KEY, value text NOT NULL);
         CREATE TABLE {schema}.record (
           id                    uuid NOT NULL,
           -- {RUNNING} running, {UNKNOWN} unknown, {RELEASED} released, {COMPLETED} completed.
           state                 smallint NOT NULL CHECK (state BETWEEN 1 AND 4),
           format                smallint NOT NULL DEFAULT {FORMAT} CHECK (format >= 1),
           attempt               integer NOT NULL CHECK (attempt >= 1),
           token                 uuid NOT NULL,
           count                 bigint NOT NULL CHECK (count >= 1),
           key                   text NOT NULL,
           route                 text NOT NULL,
           target                text NOT NULL DEFAULT '',
           principal             bytea NOT NULL CHECK (octet_length(principal) = 32),
           fingerprint_version   smallint NOT NULL CHECK (fingerprint_version BETWEEN 0 AND 255),
           fingerprint_canonical bytea NOT NULL CHECK (octet_length(fingerprint_canonical) = 32),
           fingerprint_raw       bytea NOT NULL CHECK (octet_length(fingerprint_raw) = 32),
           first_claimed_at      timestamptz NOT NULL,
           lease_ms              bigint NOT NULL CHECK (lease_ms >= 1),
           quiet_ms              bigint NOT NULL CHECK (quiet_ms >= 0),
           ttl_ms                bigint NOT NULL CHECK (ttl_ms >= 0),
           lease_until           timestamptz,
           unknown_since         timestamptz,
           expires_at            timestamptz,
           taken_from            smallint CHECK (taken_from IN ({UNKNOWN}, {RELEASED})),
           taken_at              timestamptz,
           settled_by            smallint CHECK (settled_by BETWEEN 1 AND 4),
           head                  bytea,
           body                  bytea,
           CONSTRAINT running_has_a_lease CHECK ((state = {RUNNING}) = (lease_until IS NOT NULL)),
           CONSTRAINT unknown_has_a_since CHECK ((state = {UNKNOWN}) = (unknown_since IS NOT NULL)),
           CONSTRAINT final_expires CHECK ((state IN ({RELEASED}, {COMPLETED})) = (expires_at IS NOT NULL)),
           CONSTRAINT completed_has_a_response
             CHECK (CASE WHEN state = {COMPLETED} THEN head IS NOT NULL AND settled_by IS NOT NULL
                         ELSE head IS NULL AND body IS NULL AND settled_by IS NULL END),
           CONSTRAINT taken_from_a_moment CHECK ((taken_from IS NULL) = (taken_at IS NULL))
         ) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
         ALTER TABLE {schema}.record ALTER body SET STORAGE EXTERNAL;
         CREATE UNIQUE INDEX record_id ON {schema}.record (id);
         CREATE INDEX record_running ON {schema}.record (id) WHERE state = {RUNNING};
         CREATE INDEX record_unknown ON {schema}.record (id) WHERE state = {UNKNOWN};
         CREATE INDEX record_expiry ON {schema}.record (expires_at) WHERE expires_at IS NOT NULL;
         {view}",
        view = view(schema)
    )
}

/// What a person reads. The first byte of a head is its format, the next two are the status.
fn view(schema: &str) -> String {
    format!(
        "CREATE VIEW {schema}.operation AS
           SELECT id,
                  CASE state WHEN {RUNNING} THEN 'running' WHEN {UNKNOWN} THEN 'unknown'
                             WHEN {RELEASED} THEN 'released' WHEN {COMPLETED} THEN 'completed' END AS state,
                  key, route, encode(principal, 'hex') AS principal, attempt, attempt - 1 AS retries,
                  {STATUS} AS status, octet_length(body) AS body_bytes,
                  first_claimed_at, lease_until, unknown_since, expires_at,
                  CASE settled_by WHEN 1 THEN 'owner' WHEN 2 THEN 'policy' WHEN 3 THEN 'reconcile' WHEN 4 THEN 'operator' END
                    AS settled_by
             FROM {schema}.record;"
    )
}

const STATUS: &str = "get_byte(head, 1) + 256 * get_byte(head, 2)";
