//! The statements: a file in `sql/` for each, filled in with the schema and the columns.
//!
//! Every table is named with its schema, because the search path is the user's own. Every answer about records has the
//! store's time in each row. A statement about records does nothing, and answers with no row, once the records were moved
//! elsewhere and until an import is finished.

use super::audit_rows;
use super::columns::{COMPLETED, FORMAT, Param, RELEASED, RUNNING, Row, UNKNOWN};

/// Makes [`Statement`]: of each its file, and the columns that each member of a batch gives.
macro_rules! statements {
    ($($name:ident: $file:literal, $columns:expr;)+) => {
        /// A statement on the table `record`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) enum Statement {
            $($name,)+
        }

        impl Statement {
            pub(super) const ALL: &'static [Self] = &[$(Self::$name,)+];

            const fn template(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("sql/", $file, ".sql")),)+
                }
            }

            fn columns(self) -> Vec<&'static str> {
                match self {
                    $(Self::$name => $columns.concat(),)+
                }
            }
        }
    };
}

statements! {
    Load: "load", [["id"]];
    Claim: "claim", [CLAIMED, &["not_after"]];
    Complete: "complete", [["id", "settled_by", "head", "body", "old_token", "old_states"]];
    Put: "put", [Row::NAMES, &["old_token", "old_count", "not_after"]];
    Delete: "delete", [["id", "old_token", "old_count"]];
    Renew: "renew", [["id", "token", "lease_ms"]];
    RenewUnlocked: "renew_unlocked", [["id", "token", "lease_ms"]];
    ScanRunning: "scan_running", [[]];
    ScanUnknown: "scan_unknown", [[]];
    ScanAll: "scan_all", [[]];
    Sweep: "sweep", [[]];
    Census: "census", [[]];
    Import: "import", [Row::NAMES];
    Append: "append", [[]];
    OldChains: "old_chains", [[]];
    Prune: "prune", [[]];
    ChainEnd: "chain_end", [[]];
    ChainEnds: "chain_ends", [[]];
    ChainRows: "chain_rows", [[]];
    CountEntries: "count_entries", [[]];
}

impl Statement {
    /// Its text, for the schema of this quoted name.
    pub(super) fn sql(self, schema: &str) -> String {
        let texts = [
            ("{given}", self.given()),
            ("{clock}", CLOCK.to_owned()),
            ("{written}", format!("SELECT c.now, NULL::uuid AS id, w.* FROM clock c {WRITTEN}")),
            ("{with_written}", WRITTEN.to_owned()),
            ("{read}", format!("c.now, {NOT_WRITTEN}, {}", listed(Row::NAMES, "r."))),
            ("{nothing}", nothing()),
            ("{columns}", Row::NAMES.join(", ")),
            ("{a.columns}", listed(Row::NAMES, "a.")),
            ("{claimed}", CLAIMED.join(", ")),
            ("{a.claimed}", listed(CLAIMED, "a.")),
            ("{entries}", audit_rows::given()),
            ("{entry}", audit_rows::names("")),
            ("{a.entry}", audit_rows::names("a.")),
            ("{exact}", audit_rows::EXACT.to_owned()),
        ];
        let template = self.template().to_owned();
        filled_in(&texts.iter().fold(template, |sql, (name, text)| sql.replace(name, text)), schema)
    }

    /// The parameters of a batch: for each column an array with the value of each member.
    pub(super) fn params<'a>(self, rows: &[Row<'a>]) -> Vec<Param<'a>> {
        self.columns().into_iter().map(|column| Row::array(column, rows)).collect()
    }

    /// The members of a batch as the table `a`.
    fn given(self) -> String {
        let columns = self.columns();
        let array = |(column, number)| format!("${number}::{}[]", Row::sql_type(column));
        let arrays: Vec<_> = columns.iter().copied().zip(1..).map(array).collect();
        format!("unnest({}) AS a ({})", arrays.join(", "), columns.join(", "))
    }
}

/// The text with the schema, the numbers of the states, and the clock.
pub(super) fn filled_in(sql: &str, schema: &str) -> String {
    let sql = sql.replace("{schema}", schema).replace("{now}", NOW);
    let numbers = [
        ("{running}", RUNNING),
        ("{unknown}", UNKNOWN),
        ("{released}", RELEASED),
        ("{completed}", COMPLETED),
        ("{format}", FORMAT),
    ];
    numbers.iter().fold(sql, |sql, (name, number)| sql.replace(name, &number.to_string()))
}

fn listed(names: &[&str], prefix: &str) -> String {
    names.iter().map(|name| format!("{prefix}{name}")).collect::<Vec<_>>().join(", ")
}

/// The columns of a record where there is none.
fn nothing() -> String {
    let null = |name: &&str| format!("NULL::{}", Row::sql_type(name));
    Row::NAMES.iter().map(null).collect::<Vec<_>>().join(", ")
}

const NOT_WRITTEN: &str = "NULL::uuid[] AS ids, NULL::uuid[] AS tokens, NULL::bigint[] AS counts";
/// The columns of a claim that do not depend on the time.
#[rustfmt::skip]
const CLAIMED: &[&str] = &[
    "id", "token", "count", "attempt", "state", "key", "fingerprint_version", "fingerprint_canonical",
    "fingerprint_raw", "principal", "route", "target", "lease_ms", "quiet_ms", "ttl_ms", "format",
];
/// The server's clock, in whole milliseconds. Not qualified, so that a test can stand in for it.
pub(super) const NOW: &str = "date_trunc('milliseconds', clock_timestamp())";
/// The store's time, once per statement.
const CLOCK: &str = "clock AS MATERIALIZED (
  SELECT {now} AS now FROM {schema}.meta m WHERE m.one = 1 AND m.moved_to IS NULL AND m.imported_from IS NULL)";
/// The ids that were written, with their revisions, in one row.
const WRITTEN: &str = "CROSS JOIN (
  SELECT array_agg(m.id) AS ids, array_agg(m.token) AS tokens, array_agg(m.count) AS counts FROM made m) w";
