//! The statements: a file in `sql/` for each, filled in with the schema and the columns.
//!
//! Every table of ours is named with its schema: the search path of our sessions leads to the server's own names alone. A statement about records answers with
//! a row for each record, in which `wrote` says whether the statement wrote it. Every row has the store's time; if there is
//! no record, there is one that has only that. Once the records were moved elsewhere, and until an import is finished, the
//! statement does nothing and answers with no row.

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
    ScanRunning: "scan", [[]];
    ScanUnknown: "scan", [[]];
    ScanAll: "scan", [[]];
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
            ("{made}", MADE.to_owned()),
            ("{listed}", self.listed().to_owned()),
            ("{columns}", listed(Row::NAMES, "")),
            ("{a.columns}", listed(Row::NAMES, "a.")),
            ("{m.columns}", listed(Row::NAMES, "m.")),
            ("{r.columns}", listed(Row::NAMES, "r.")),
            ("{excluded.columns}", listed(Row::NAMES, "excluded.")),
            ("{claimed}", listed(CLAIMED, "")),
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

    /// What a scan lists.
    const fn listed(self) -> &'static str {
        match self {
            Self::ScanRunning => "r.state = {running} AND",
            Self::ScanUnknown => "r.state = {unknown} AND",
            _ => "",
        }
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

/// The columns of a claim that do not depend on the time.
#[rustfmt::skip]
const CLAIMED: &[&str] = &[
    "id", "token", "count", "attempt", "state", "key", "fingerprint_version", "fingerprint_canonical",
    "fingerprint_raw", "principal", "route", "target", "lease_ms", "quiet_ms", "ttl_ms", "format",
];
/// The server's clock, in whole milliseconds.
pub(super) const NOW: &str = "date_trunc('milliseconds', clock_timestamp())";
/// The store's time, once per statement.
const CLOCK: &str = "clock AS MATERIALIZED (
  SELECT {now} AS now FROM {schema}.meta m WHERE m.one = 1 AND m.moved_to IS NULL AND m.imported_from IS NULL)";
/// The records that were written, each with its new revision.
const MADE: &str = "SELECT c.now, true AS wrote, m.* FROM clock c LEFT JOIN made m ON true";
