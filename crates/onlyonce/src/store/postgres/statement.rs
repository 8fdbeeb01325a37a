//! The statements: a file in `sql/` for each, filled in with the schema and the columns.
//!
//! Every table is named with its schema, because the search path is the user's own. Every answer has the store's time
//! in each row. A statement does nothing, and answers with no row, once the records were moved elsewhere and until an
//! import is finished.

use super::columns::{COMPLETED, Condition, FORMAT, Param, RELEASED, RUNNING, Row, UNKNOWN};

/// A statement on the table `record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Load,
    Claim,
    Complete,
    Put,
    Delete,
    Renew,
    RenewUnlocked,
    ScanRunning,
    ScanUnknown,
    ScanAll,
    Sweep,
    HasExpired,
    Import,
}

/// A member of a batch, as a statement takes it.
#[derive(Clone, Default)]
pub(super) struct Write<'a> {
    pub(super) row: Row<'a>,
    pub(super) condition: Condition<'a>,
}

impl Statement {
    const fn template(self) -> &'static str {
        match self {
            Self::Load => include_str!("sql/load.sql"),
            Self::Claim => include_str!("sql/claim.sql"),
            Self::Complete => include_str!("sql/complete.sql"),
            Self::Put => include_str!("sql/put.sql"),
            Self::Delete => include_str!("sql/delete.sql"),
            Self::Renew => include_str!("sql/renew.sql"),
            Self::RenewUnlocked => include_str!("sql/renew_unlocked.sql"),
            Self::ScanRunning => include_str!("sql/scan_running.sql"),
            Self::ScanUnknown => include_str!("sql/scan_unknown.sql"),
            Self::ScanAll => include_str!("sql/scan_all.sql"),
            Self::Sweep => include_str!("sql/sweep.sql"),
            Self::HasExpired => include_str!("sql/has_expired.sql"),
            Self::Import => include_str!("sql/import.sql"),
        }
    }

    /// The columns that each member of a batch gives: of its row, and of its condition.
    fn columns(self) -> (Vec<&'static str>, Vec<&'static str>) {
        let (row, condition) = match self {
            Self::Load => ("id", ""),
            Self::Claim => (CLAIMED, "not_after"),
            Self::Complete => {
                ("id settled_by head body", "old_token old_count old_states new_token")
            }
            Self::Put => return (Row::NAMES.to_vec(), vec!["old_token", "old_count", "not_after"]),
            Self::Delete => ("id", "old_token old_count"),
            Self::Renew | Self::RenewUnlocked => ("id token lease_ms", ""),
            Self::Import => return (Row::NAMES.to_vec(), Vec::new()),
            Self::ScanRunning | Self::ScanUnknown | Self::ScanAll => ("", ""),
            Self::Sweep | Self::HasExpired => ("", ""),
        };
        (row.split_whitespace().collect(), condition.split_whitespace().collect())
    }

    /// Its text, for the schema of this quoted name.
    pub(super) fn sql(self, schema: &str) -> String {
        let texts = [
            ("{given}", self.given()),
            ("{clock}", CLOCK.to_owned()),
            ("{written}", WRITTEN.to_owned()),
            (
                "{read}",
                format!("c.now, {NOT_WRITTEN}, {}", listed(Row::NAMES.iter().copied(), "r.")),
            ),
            ("{nothing}", nothing()),
            ("{columns}", Row::NAMES.join(", ")),
            ("{a.columns}", listed(Row::NAMES.iter().copied(), "a.")),
            ("{claimed}", listed(CLAIMED.split_whitespace(), "")),
            ("{a.claimed}", listed(CLAIMED.split_whitespace(), "a.")),
        ];
        let sql = texts
            .iter()
            .fold(self.template().to_owned(), |sql, (name, text)| sql.replace(name, text));
        filled_in(&sql, schema)
    }

    /// The parameters of a batch: for each column an array with the value of each member.
    pub(super) fn params<'a>(self, writes: Vec<Write<'a>>) -> Vec<Param<'a>> {
        let (of_row, of_condition) = self.columns();
        let (rows, conditions): (Vec<_>, Vec<_>) =
            writes.into_iter().map(|write| (write.row, write.condition)).unzip();
        let given = of_row.iter().filter_map(|column| Row::array(column, &rows));
        let asked = of_condition.iter().filter_map(|column| Condition::array(column, &conditions));
        given.chain(asked).collect()
    }

    /// The members of a batch as the table `a`.
    fn given(self) -> String {
        let (of_row, of_condition) = self.columns();
        let types = of_row.iter().map(|column| Row::sql_type(column));
        let types = types.chain(of_condition.iter().map(|column| Condition::sql_type(column)));
        let array = |(kind, number): (Option<&str>, usize)| {
            format!("${number}::{}[]", kind.expect("a statement names columns that there are"))
        };
        let arrays: Vec<_> = types.zip(1..).map(array).collect();
        let names = [of_row, of_condition].concat();
        format!("unnest({}) AS a ({})", arrays.join(", "), names.join(", "))
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

fn listed<'a>(names: impl Iterator<Item = &'a str>, prefix: &str) -> String {
    names.map(|name| format!("{prefix}{name}")).collect::<Vec<_>>().join(", ")
}

/// The columns of a record where there is none.
fn nothing() -> String {
    let null = |name: &&str| format!("NULL::{}", Row::sql_type(name).unwrap_or("text"));
    Row::NAMES.iter().map(null).collect::<Vec<_>>().join(", ")
}

const NOT_WRITTEN: &str = "NULL::uuid[] AS ids, NULL::uuid[] AS tokens, NULL::bigint[] AS counts";
/// The columns of a claim that do not depend on the time.
const CLAIMED: &str =
    "id token count attempt state key fingerprint_version fingerprint_canonical fingerprint_raw
    principal route target lease_ms quiet_ms ttl_ms format";
/// The server's clock, in whole milliseconds. Not qualified, so that a test can stand in for it.
pub(super) const NOW: &str = "date_trunc('milliseconds', clock_timestamp())";
/// The store's time, once per statement.
const CLOCK: &str = "clock AS MATERIALIZED (
  SELECT {now} AS now FROM {schema}.meta m WHERE m.one = 1 AND m.moved_to IS NULL AND m.imported_from IS NULL)";
/// What a write answers: one row with the time, and the ids that were written with their revisions.
const WRITTEN: &str = "SELECT c.now, NULL::uuid AS id, w.* FROM clock c CROSS JOIN (
  SELECT array_agg(m.id) AS ids, array_agg(m.token) AS tokens, array_agg(m.count) AS counts FROM made m) w";
