//! The statements. Each names its tables with their schema, because the search path is the user's own, and each
//! answers with the store's time in every row.
//!
//! A statement does nothing, and answers with no row, once the records were moved elsewhere and until an import is
//! finished.

use super::columns::{COMPLETED, Condition, FORMAT, Param, RELEASED, RUNNING, Row, UNKNOWN};

/// A statement on the table `record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Reads records by their ids.
    Load,
    /// Inserts records where there are none, and reads the others.
    Claim,
    /// Writes final outcomes over the records whose condition holds.
    Complete,
    /// Replaces whole records that are exactly as they were read.
    Put,
    /// Deletes records that are exactly as they were read.
    Delete,
    /// Extends leases.
    Renew,
    /// Extends the leases of the rows that nobody has locked.
    RenewUnlocked,
    /// Lists running records, by the index that has only those.
    ScanRunning,
    /// Lists unknown records, by the index that has only those.
    ScanUnknown,
    /// Lists records in any state.
    ScanAll,
    /// Deletes expired records.
    Sweep,
    /// Whether there are expired records.
    HasExpired,
    /// Copies records from another store.
    Import,
}

/// A member of a batch, as a statement takes it.
#[derive(Clone, Default)]
pub(super) struct Write<'a> {
    pub(super) row: Row<'a>,
    pub(super) condition: Condition<'a>,
}

impl Statement {
    /// Its text, for the schema of this quoted name.
    pub(super) fn sql(self, schema: &str) -> String {
        let (clock, record) = (clock(schema), format!("{schema}.record"));
        let given = self.given();
        match self {
            Self::Load => load(&clock, &record, &given),
            Self::Claim => claim(&clock, &record, &given),
            Self::Complete => complete(&clock, &record, &given),
            Self::Put => put(&clock, &record, &given),
            Self::Delete => delete(&clock, &record, &given),
            Self::Renew => renew(&clock, &record, &given),
            Self::RenewUnlocked => renew_unlocked(&clock, &record, &given),
            Self::ScanRunning => scan(&clock, &record, RUNNING),
            Self::ScanUnknown => scan(&clock, &record, UNKNOWN),
            Self::ScanAll => scan_all(&clock, &record),
            Self::Sweep => sweep(&clock, &record),
            Self::HasExpired => has_expired(&clock, &record),
            Self::Import => import(&record, &given),
        }
    }

    /// The columns that each member of a batch gives: of its row, and of its condition.
    fn columns(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Load => (&["id"], &[]),
            Self::Claim => (CLAIMED, &["not_after"]),
            Self::Complete => {
                let condition = &["old_token", "old_count", "old_states", "new_token"];
                (&["id", "settled_by", "head", "body"], condition)
            }
            Self::Put => (Row::NAMES, &["old_token", "old_count", "not_after"]),
            Self::Delete => (&["id"], &["old_token", "old_count"]),
            Self::Renew | Self::RenewUnlocked => (&["id", "token", "lease_ms"], &[]),
            Self::Import => (Row::NAMES, &[]),
            Self::ScanRunning
            | Self::ScanUnknown
            | Self::ScanAll
            | Self::Sweep
            | Self::HasExpired => (&[], &[]),
        }
    }

    /// The parameters of a batch: for each column an array with the value of each member.
    pub(super) fn params<'a>(self, writes: Vec<Write<'a>>) -> Vec<Param<'a>> {
        let (rows, conditions) = self.columns();
        let (given, asked): (Vec<_>, Vec<_>) =
            writes.into_iter().map(|write| (write.row, write.condition)).unzip();
        let rows = rows.iter().filter_map(|column| Row::array(column, &given));
        rows.chain(conditions.iter().filter_map(|column| Condition::array(column, &asked)))
            .collect()
    }

    /// The members of a batch as the table `a`.
    fn given(self) -> String {
        let (rows, conditions) = self.columns();
        let rows = rows.iter().map(|column| (*column, Row::sql_type(column)));
        let conditions = conditions.iter().map(|column| (*column, Condition::sql_type(column)));
        let columns: Vec<_> = rows.chain(conditions).collect();
        let arrays = columns.iter().zip(1..).map(|((_, kind), number)| {
            format!("${number}::{}[]", kind.expect("a statement names columns that there are"))
        });
        let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
        format!("unnest({}) AS a ({})", arrays.collect::<Vec<_>>().join(", "), names.join(", "))
    }
}

/// The columns of a claim that do not depend on the time.
const CLAIMED: &[&str] = &[
    "id",
    "token",
    "count",
    "attempt",
    "state",
    "key",
    "fingerprint_version",
    "fingerprint_canonical",
    "fingerprint_raw",
    "principal",
    "route",
    "target",
    "lease_ms",
    "quiet_ms",
    "ttl_ms",
    "format",
];

/// The store's time, once per statement.
fn clock(schema: &str) -> String {
    format!(
        "WITH clock AS MATERIALIZED (
           SELECT {NOW} AS now FROM {schema}.meta m
            WHERE m.one = 1 AND m.moved_to IS NULL AND m.imported_from IS NULL)"
    )
}

/// The server's clock, in whole milliseconds. Not qualified, so that a test can stand in for it.
pub(super) const NOW: &str = "date_trunc('milliseconds', clock_timestamp())";

/// Milliseconds after the store's time; what is later than a timestamp can say is never.
fn after_now(ms: &str) -> String {
    format!(
        "CASE WHEN {ms} > {MS_MAX} THEN 'infinity' ELSE c.now + {ms} * interval '1 millisecond' END"
    )
}

/// More than a hundred thousand years.
const MS_MAX: i64 = 4_000_000_000_000_000;

/// Every column of the table, each with a prefix.
fn all(prefix: &str) -> String {
    Row::NAMES.iter().map(|name| format!("{prefix}{name}")).collect::<Vec<_>>().join(", ")
}

/// What a reading statement answers: the time in a row of its own, and whole records. Rows with only an id were written.
fn found(from: &str) -> String {
    format!(
        "SELECT c.now, false AS written, {} FROM clock c CROSS JOIN {from} UNION ALL {}",
        all("r."),
        time()
    )
}

fn time() -> String {
    format!("SELECT c.now, false, {} FROM clock c", nulls("NULL"))
}

/// A row that has an id and nothing else.
fn nulls(id: &str) -> String {
    let null = |name: &&str| match *name {
        "id" => format!("{id}::uuid"),
        name => format!("NULL::{}", Row::sql_type(name).unwrap_or("text")),
    };
    Row::NAMES.iter().map(null).collect::<Vec<_>>().join(", ")
}

fn load(clock: &str, record: &str, given: &str) -> String {
    format!("{clock} {}", found(&format!("{given} JOIN {record} r ON r.id = a.id")))
}

/// Reads first: what is there costs no transaction id and no flush. A claim that finds nothing and inserts nothing has
/// met another claim that was not committed yet, and is asked again.
fn claim(clock: &str, record: &str, given: &str) -> String {
    let (names, values) = (CLAIMED.join(", "), CLAIMED.iter().map(|name| format!("a.{name}")));
    let values = values.collect::<Vec<_>>().join(", ");
    let lease_until = after_now("a.lease_ms");
    format!(
        "{clock}, asked AS MATERIALIZED (SELECT * FROM {given}),
         made AS (
           INSERT INTO {record} ({names}, first_claimed_at, lease_until)
           SELECT {values}, c.now, {lease_until} FROM asked a CROSS JOIN clock c
            WHERE c.now <= a.not_after AND NOT EXISTS (SELECT FROM {record} r WHERE r.id = a.id)
           ON CONFLICT (id) DO NOTHING RETURNING id)
         {found} UNION ALL SELECT c.now, true, {made} FROM clock c CROSS JOIN made m",
        found = found(&format!("asked a JOIN {record} r ON r.id = a.id")),
        made = nulls("m.id"),
    )
}

/// What a write answers: the time in a row of its own, and each id that was written with its revision.
const WRITTEN: &str =
    "SELECT c.now, true AS written, m.id, m.token, m.count FROM clock c CROSS JOIN made m
    UNION ALL SELECT c.now, false, NULL, NULL, NULL FROM clock c";

/// The only swap whose guard is judged by the server, because it is one in two of all writes: as a `Put` it would
/// need a read and a second commit.
fn complete(clock: &str, record: &str, given: &str) -> String {
    let expires_at = after_now("r.ttl_ms");
    format!(
        "{clock}, made AS (
           UPDATE {record} r
              SET token = COALESCE(a.new_token, r.token),
                  count = CASE WHEN a.new_token IS NULL THEN r.count + 1 ELSE 1 END,
                  state = {COMPLETED}, lease_until = NULL, unknown_since = NULL, expires_at = {expires_at},
                  settled_by = a.settled_by, head = a.head, body = a.body
             FROM {given}, clock c
            WHERE r.id = a.id AND r.token = a.old_token AND r.format = {FORMAT}
              AND CASE WHEN a.old_states = 0 THEN r.count = a.old_count ELSE (a.old_states >> r.state) & 1 = 1 END
           RETURNING r.id, r.token, r.count)
         {WRITTEN}"
    )
}

/// The row of `a` is exactly as it was read.
fn unchanged() -> String {
    format!(
        "r.id = a.id AND r.token = a.old_token AND r.count = a.old_count AND r.format = {FORMAT}"
    )
}

/// A take obeys its `not_after` at the moment when it has the row, not only when it began to wait for it.
fn put(clock: &str, record: &str, given: &str) -> String {
    let unchanged = unchanged();
    format!(
        "{clock}, made AS (
           UPDATE {record} r SET ({names}) = ROW ({values}) FROM {given}, clock c
            WHERE {unchanged} AND c.now <= a.not_after AND {NOW} <= a.not_after
           RETURNING r.id, r.token, r.count)
         {WRITTEN}",
        names = all(""),
        values = all("a."),
    )
}

fn delete(clock: &str, record: &str, given: &str) -> String {
    let unchanged = unchanged();
    format!(
        "{clock}, made AS (
           DELETE FROM {record} r USING {given}, clock c WHERE {unchanged} RETURNING r.id, r.token, r.count)
         {WRITTEN}"
    )
}

fn renew(clock: &str, record: &str, given: &str) -> String {
    let lease_until = after_now("a.lease_ms");
    format!(
        "{clock}, made AS (
           UPDATE {record} r SET lease_until = {lease_until}, count = r.count + 1
             FROM {given}, clock c
            WHERE r.id = a.id AND r.token = a.token AND r.state = {RUNNING} AND r.format = {FORMAT}
           RETURNING r.id, r.token, r.count)
         {WRITTEN}"
    )
}

/// Locks the rows first, and so writes them twice.
fn renew_unlocked(clock: &str, record: &str, given: &str) -> String {
    let lease_until = after_now("a.lease_ms");
    format!(
        "{clock}, a AS MATERIALIZED (
           SELECT r.id, a.lease_ms FROM {given} JOIN {record} r ON r.id = a.id
            WHERE r.token = a.token AND r.state = {RUNNING} AND r.format = {FORMAT} FOR UPDATE OF r SKIP LOCKED),
         made AS (
           UPDATE {record} r SET lease_until = {lease_until}, count = r.count + 1
             FROM a, clock c WHERE r.id = a.id
           RETURNING r.id, r.token, r.count)
         {WRITTEN}"
    )
}

/// From the id $1 on, $2 records at most.
fn scan(clock: &str, record: &str, state: i16) -> String {
    let some = format!(
        "(SELECT * FROM {record} r WHERE r.state = {state} AND r.id >= $1::uuid ORDER BY r.id LIMIT $2::bigint) r"
    );
    format!("{clock} {}", found(&some))
}

/// From the id $1 on, all of the next $2 records, in whichever state they are.
fn scan_all(clock: &str, record: &str) -> String {
    let some = format!(
        "(SELECT * FROM {record} r WHERE r.id >= $1::uuid ORDER BY r.id LIMIT $2::bigint) r"
    );
    format!("{clock} {}", found(&some))
}

/// The records that have expired at $1, from those on that expired at $2.
fn expired() -> String {
    format!(
        "r.expires_at >= $2::timestamptz AND r.expires_at <= $1::timestamptz
         AND r.state IN ({RELEASED}, {COMPLETED}) AND r.format = {FORMAT}"
    )
}

/// Deletes at most $3 rows. A row that is locked is passed, and one that was changed before it was locked is judged
/// again. The answer tells where to go on: while an old snapshot keeps deleted rows from being cleaned up, a sweep that
/// began at the start again would read all of those first.
fn sweep(clock: &str, record: &str) -> String {
    let expired = expired();
    format!(
        "{clock}, due AS MATERIALIZED (
           SELECT r.id, r.expires_at FROM clock c, {record} r WHERE {expired}
            ORDER BY r.expires_at LIMIT $3::bigint FOR UPDATE OF r SKIP LOCKED),
         gone AS (DELETE FROM {record} r USING due d WHERE r.id = d.id RETURNING 1)
         SELECT c.now, (SELECT count(*) FROM gone) AS deleted, (SELECT max(d.expires_at) FROM due d) AS reached
           FROM clock c"
    )
}

fn has_expired(clock: &str, record: &str) -> String {
    let expired = expired();
    format!(
        "{clock} SELECT c.now, EXISTS (SELECT FROM {record} r WHERE {expired}) AS has_expired FROM clock c"
    )
}

fn import(record: &str, given: &str) -> String {
    let (names, values) = (all(""), all("a."));
    format!(
        "INSERT INTO {record} ({names}) SELECT {values} FROM {given} ON CONFLICT (id) DO NOTHING"
    )
}
