//! The calls of the functions, with the schema's name in them. Values that not every driver knows go as text.
//!
//! They run in the caller's own session, under its search_path, in which others may have put functions, operators and types of
//! the server's names. So every name is a full one. (`integer`, `double precision`, `interval` and EXTRACT are words of the
//! grammar, and always the server's.)

use std::sync::Arc;
#[cfg(all(feature = "sqlx", feature = "tower"))]
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Statements {
    /// The name of the schema, quoted.
    #[cfg(all(feature = "sqlx", feature = "tower"))]
    pub(super) schema: String,
    /// scope, principal, key, fingerprint, milliseconds of the ttl, version
    pub(super) begin: Arc<str>,
    /// token, status, headers, body
    pub(super) complete: Arc<str>,
    /// token, topic, key, payload
    pub(super) outbox: Arc<str>,
    /// token, fingerprint
    pub(super) resolve: Arc<str>,
    /// consumer, message id
    pub(super) seen: Arc<str>,
    /// consumer, message id
    pub(super) is_seen: Arc<str>,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        let schema = format!("\"{}\"", schema.replace('"', "\"\""));
        let sql = |text: &str| filled_in(text, &schema).into();
        Self {
            begin: begin(&schema, ""),
            complete: sql("SELECT {schema}.complete({uuid of $1}, $2, $3::{text}::pg_catalog.jsonb, $4)"),
            outbox: sql("SELECT {schema}.outbox({uuid of $1}, $2, $3, $4)::{text} AS id"),
            resolve: sql(
                "SELECT 'replay' AS outcome, NULL::{text} AS token, status, headers::{text} AS headers, body
                   FROM {schema}.resolve({uuid of $1}, $2)",
            ),
            seen: sql("SELECT {schema}.seen($1, $2) AS seen"),
            is_seen: sql(
                "SELECT EXISTS (SELECT FROM {schema}.inbox i
                                 WHERE i.consumer OPERATOR(pg_catalog.=) $1 AND i.message_id OPERATOR(pg_catalog.=) $2)
                    AS is_seen",
            ),
            #[cfg(all(feature = "sqlx", feature = "tower"))]
            schema,
        }
    }

    /// The same, but `begin` sets a limit to every statement of its transaction. A shorter limit of the role stays.
    #[cfg(all(feature = "sqlx", feature = "tower"))]
    pub(super) fn with_statement_limit(&self, limit: Duration) -> Self {
        let limit_ms = limit.as_millis().clamp(1, i32::MAX as u128).to_string();
        let begin = begin(&self.schema, &STATEMENT_LIMIT.replace("{limit_ms}", &limit_ms));
        Self { begin, ..self.clone() }
    }
}

fn begin(schema: &str, and: &str) -> Arc<str> {
    let sql = format!(
        "SELECT outcome, token::{{text}} AS token, status, headers::{{text}} AS headers, body{and}
           FROM {{schema}}.begin($1, $2, $3, $4, $5::double precision OPERATOR(pg_catalog.*) interval '1 ms', $6::integer)"
    );
    filled_in(&sql, schema).into()
}

fn filled_in(text: &str, schema: &str) -> String {
    let text = text.replace("{uuid of $1}", "$1::{text}::pg_catalog.uuid");
    text.replace("{text}", "pg_catalog.text").replace("{schema}", schema)
}

/// In the call of `begin`, so that it costs no round trip.
#[cfg(all(feature = "sqlx", feature = "tower"))]
const STATEMENT_LIMIT: &str = ", pg_catalog.set_config('statement_timeout', CASE
    WHEN EXTRACT(epoch FROM pg_catalog.current_setting('statement_timeout')::interval) OPERATOR(pg_catalog.*) 1000
         OPERATOR(pg_catalog.<@) pg_catalog.numrange(1, {limit_ms}, '[]')
    THEN pg_catalog.current_setting('statement_timeout') ELSE '{limit_ms}' END, true)";

/// The version of the functions that these calls are made for.
pub(super) const VERSION: i32 = 1;
/// The writes after this point are undone by [`UNDO`]; the begun operation stays.
#[cfg(feature = "postgres")]
pub(super) const SAVEPOINT: &str = "SAVEPOINT onlyonce_work";
#[cfg(feature = "postgres")]
pub(super) const UNDO: &str = "ROLLBACK TO SAVEPOINT onlyonce_work";
