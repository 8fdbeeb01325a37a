//! The calls of the functions, with the schema's name in them. Values that not every driver knows go as text.

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
        let sql = |text: &str| text.replace("{schema}", &schema).into();
        Self {
            begin: begin(&schema, ""),
            complete: sql("SELECT {schema}.complete($1::text::uuid, $2, $3::text::jsonb, $4)"),
            outbox: sql("SELECT {schema}.outbox($1::text::uuid, $2, $3, $4)::text AS id"),
            resolve: sql(
                "SELECT 'replay' AS outcome, NULL::text AS token, status, headers::text AS headers, body
                   FROM {schema}.resolve($1::text::uuid, $2)",
            ),
            seen: sql("SELECT {schema}.seen($1, $2) AS seen"),
            is_seen: sql(
                "SELECT EXISTS (SELECT FROM {schema}.inbox WHERE consumer = $1 AND message_id = $2) AS is_seen",
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
        "SELECT outcome, token::text AS token, status, headers::text AS headers, body{and}
           FROM {schema}.begin($1, $2, $3, $4, $5::float8 * interval '1 ms', $6::integer)"
    );
    sql.into()
}

/// In the call of `begin`, so that it costs no round trip.
#[cfg(all(feature = "sqlx", feature = "tower"))]
const STATEMENT_LIMIT: &str = ", set_config('statement_timeout', CASE
    WHEN extract(epoch FROM current_setting('statement_timeout')::interval) * 1000 BETWEEN 1 AND {limit_ms}
    THEN current_setting('statement_timeout') ELSE '{limit_ms}' END, true)";

/// The version of the functions that these calls are made for.
pub(super) const VERSION: i32 = 1;
/// The writes after this point are undone by [`UNDO`]; the begun operation stays.
#[cfg(feature = "postgres")]
pub(super) const SAVEPOINT: &str = "SAVEPOINT onlyonce_work";
#[cfg(feature = "postgres")]
pub(super) const UNDO: &str = "ROLLBACK TO SAVEPOINT onlyonce_work";
