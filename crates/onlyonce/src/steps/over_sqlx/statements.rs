//! The statements of recovery points in Postgres.
//!
//! They run in sessions of the caller's, under its search_path, in which others may have put functions, operators and types of
//! the server's names. So every name is a full one, as in `transaction/statements.rs`.

use std::sync::Arc;

/// With the schema's name in them. UUIDs go as text, because sqlx has them behind a feature.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) load: Arc<str>,
    pub(super) insert: Arc<str>,
    pub(super) swap: Arc<str>,
    pub(super) renew: Arc<str>,
    pub(super) due: Arc<str>,
    pub(super) locked: Arc<str>,
    pub(super) point: Arc<str>,
    pub(super) finish: Arc<str>,
    pub(super) demand_open: Arc<str>,
    pub(super) outbox: Arc<str>,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        let schema = format!("\"{}\"", schema.replace('"', "\"\""));
        let sql = |text: &str| filled_in(text, &schema).into();
        Self {
            load: sql(&format!("{COLUMNS} WHERE s.id {{=}} $1{{uuid}}")),
            due: sql("SELECT s.id::{text} AS id FROM {schema}.steps s
                       WHERE s.due_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp() AND s.name {=} ANY ($1)
                         AND s.id OPERATOR(pg_catalog.<>) ALL ($3::{text}[]::pg_catalog.uuid[])
                       ORDER BY s.due_at LIMIT $2 FOR UPDATE SKIP LOCKED"),
            locked: sql(&format!(
                "{COLUMNS} WHERE s.id {{=}} ANY ($1::{{text}}[]::pg_catalog.uuid[]) ORDER BY s.due_at"
            )),
            insert: sql("SELECT {schema}.steps_insert($1{uuid}, $2, $3, $4, $5, $6, $7, $8, $9, $10{uuid}, $11, $12)
                             AS is_written"),
            swap: sql("SELECT {schema}.steps_swap($1{uuid}, $2, $3{uuid}, $4, $5{uuid}, $6, $7, $8, $9, $10, $11)
                           AS is_written"),
            renew: sql("SELECT {schema}.steps_renew($1{uuid}, $2{uuid}, $3) AS is_written"),
            point: sql("SELECT {schema}.steps_point($1{uuid}, $2, $3{uuid}, $4, $5, $6, $7, $8) AS is_written"),
            finish: sql("SELECT {schema}.steps_finish($1{uuid}, $2, $3{uuid}, $4, $5, $6::{text}::pg_catalog.jsonb, $7)
                             AS is_written"),
            demand_open: sql("SELECT {schema}.steps_demand_open($1)"),
            outbox: sql("SELECT {schema}.steps_outbox($1{uuid}, $2, $3, $4, $5)::{text} AS id"),
        }
    }
}

fn filled_in(text: &str, schema: &str) -> String {
    let names = [
        ("{* 1000}", "OPERATOR(pg_catalog.*) 1000"),
        ("{=}", "OPERATOR(pg_catalog.=)"),
        ("{uuid}", "::{text}::pg_catalog.uuid"),
        ("{text}", "pg_catalog.text"),
        ("{schema}", schema),
    ];
    names.iter().fold(text.to_owned(), |text, (name, full)| text.replace(name, full))
}

/// A row and its points, in one snapshot. Times are no integers here: `infinity` would be an error.
const COLUMNS: &str = "
    SELECT s.id::{text} AS id, s.name, s.fingerprint, s.request, s.state, s.revision, s.attempts, s.calling, s.repeatable, s.error,
           s.status, s.headers::{text} AS headers, s.body,
           (EXTRACT(epoch FROM s.since) {* 1000})::double precision AS since_ms,
           (EXTRACT(epoch FROM s.due_at) {* 1000})::double precision AS due_ms,
           (EXTRACT(epoch FROM s.expires_at) {* 1000})::double precision AS expires_ms,
           (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) {* 1000})::double precision AS now_ms,
           (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(p.name, p.value) ORDER BY p.number), '[]')::{text}
              FROM {schema}.point p WHERE p.operation {=} s.id) AS points
      FROM {schema}.steps s";
