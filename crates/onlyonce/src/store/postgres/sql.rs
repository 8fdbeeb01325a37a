//! The statements. Those that callers wait for begin with the store's time, and every table is named with its schema: the
//! search path is the user's own.
//!
//! A statement answers with rows of one shape, told apart by `kind`: the time, what was written, what
//! is there. Members of a batch that come back in no row lost their guard or their race.

/// The statements of one schema.
#[derive(Clone, Debug)]
pub(super) struct Sql {
    pub(super) claim: String,
    pub(super) complete: String,
    pub(super) claim_and_complete: String,
    pub(super) claim_carefully: String,
    pub(super) claim_and_complete_carefully: String,
    pub(super) delete: String,
    pub(super) put: String,
    pub(super) load: String,
    pub(super) renew: String,
    pub(super) renew_free: String,
    pub(super) scan_running: String,
    pub(super) scan_unknown: String,
    pub(super) scan_all: String,
    pub(super) sweep: String,
    pub(super) more: String,
    pub(super) horizon: String,
    pub(super) move_up: String,
    pub(super) beat: String,
    pub(super) hold: String,
}

impl Sql {
    /// For the schema of this quoted name.
    pub(super) fn new(schema: &str) -> Self {
        let clock = clock(schema);
        let record = format!("{schema}.record");
        Self {
            claim: claim(&clock, &record, BOLDLY),
            complete: complete(&clock, &record),
            claim_and_complete: claim_and_complete(&clock, &record, BOLDLY),
            claim_carefully: claim(&clock, &record, CAREFULLY),
            claim_and_complete_carefully: claim_and_complete(&clock, &record, CAREFULLY),
            delete: delete(&clock, &record),
            put: put(&clock, &record),
            load: load(&clock, &record),
            renew: renew(&clock, &record),
            renew_free: renew_free(&clock, &record),
            scan_running: scan_running(&clock, &record),
            scan_unknown: scan_unknown(&clock, &record),
            scan_all: scan_all(&clock, &record),
            sweep: sweep(&clock, &record),
            more: more(&clock, &record),
            horizon: horizon(schema),
            move_up: move_up(&record),
            beat: beat(&clock, schema),
            hold: hold(&clock, schema),
        }
    }
}

/// The time, once per statement: never before what this node ($2, if the clock was not confirmed since,
/// $1) or any other has seen. No row, and so no effect, once the records are kept
/// elsewhere, and until they are all here.
fn clock(schema: &str) -> String {
    format!(
        "WITH clock AS MATERIALIZED (
           SELECT GREATEST({WALL}, m.highest, CASE WHEN m.confirmed = $1::bigint THEN $2::bigint END) AS now,
                  m.clock_held, m.confirmed
             FROM {schema}.meta m WHERE m.one = 1 AND m.moved_to IS NULL AND m.filled_from IS NULL)"
    )
}

/// The server's clock in milliseconds. Not qualified, so that a test can stand in for it.
pub(super) const WALL: &str = "floor(date_part('epoch', clock_timestamp()) * 1000)::bigint";

/// What there is, of the record `r`.
const THERE: &str = "SELECT 2::smallint AS kind, NULL::bigint, NULL::boolean, NULL::bigint, r.id, NULL::uuid, NULL::bigint, r";

/// The row of the time.
const TOLD: &str = "SELECT 0::smallint, c.now, c.clock_held, c.confirmed, NULL::uuid, NULL::uuid, NULL::bigint, NULL FROM clock c";

/// Milliseconds after the store's time that end with time itself.
fn after_now(ms: &str) -> String {
    format!("CASE WHEN {ms} > {END} - c.now THEN {END} ELSE c.now + {ms} END")
}

const END: &str = "9223372036854775807";

/// The bin of this very transaction, by which a record that is running is found. It is asked for once, and only by who
/// writes: asking is what gives a transaction its number.
const BEGUN_BIN: &str = "(SELECT pg_current_xact_id()::text::bigint >> 6)";

/// The bin of the transaction that comes next.
const NEXT_BIN: &str = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint >> 6)";

/// The bin of a moment at which a record expires.
fn expiry_bin(at: &str) -> String {
    format!("LEAST({at} >> 16, {EXPIRY_BIN_LAST})::integer")
}

/// How many bins later than foreseen a record may expire: a sweep meets it before those that it can delete.
const EARLY_BINS: i32 = 4;
/// It holds everything after it too.
const EXPIRY_BIN_LAST: &str = "2147483647";

/// Reads first: what is there costs no transaction id and no flush. Who finds nothing inserts.
fn claim(clock: &str, record: &str, how: &str) -> String {
    let (claims, claimed) = (claims(record, how), claimed(record));
    format!("{clock}, {claims} {claimed} UNION ALL {TOLD}")
}

/// [`claim`] and [`complete`] in one statement: one message and one commit where most batches have both.
fn claim_and_complete(clock: &str, record: &str, how: &str) -> String {
    let (claims, completions) = (claims(record, how), completions(record, FIRST_OF_BOTH));
    let claimed = claimed(record);
    format!(
        "{clock}, {claims}, completed AS ({completions}) {claimed}
         UNION ALL SELECT 1::smallint, NULL, NULL, NULL, m.id, m.token, m.count, NULL FROM completed m
         UNION ALL {TOLD}"
    )
}

/// Who finds someone faster after all undoes the whole batch.
const BOLDLY: &str = "";
/// Who does comes back in no row, and asks again. Postgres then writes each record with a mark that it may be taken
/// back, and a second time without: a twentieth of what a cycle costs.
const CAREFULLY: &str = "ON CONFLICT (id) DO NOTHING";

/// The tables `asked` and `made` of a claim.
fn claims(record: &str, how: &str) -> String {
    let (lease_until, expires_at) = (after_now("a.lease_ms"), after_now("a.ttl_ms"));
    let expiry_bin = expiry_bin(&format!("({expires_at})"));
    format!(
        "asked AS MATERIALIZED (
           SELECT * FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::smallint[], $7::bytea[], $8::bytea[],
                                $9::bytea[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
                                $15::text[])
             AS a (id, token, key, fingerprint_version, fingerprint_canonical, fingerprint_raw, principal, route,
                   lease_ms, quiet_ms, ttl_ms, not_after, target)),
         made AS (
           INSERT INTO {record} (id, token, count, attempt, state, key, fingerprint_version,
               fingerprint_canonical, fingerprint_raw, principal, route, first_claimed_at, lease_ms, quiet_ms,
               ttl_ms, lease_until, begun_bin, expiry_bin, target)
           SELECT a.id, a.token, 1, 1, 1, a.key, a.fingerprint_version, a.fingerprint_canonical,
               a.fingerprint_raw, a.principal, a.route, c.now, a.lease_ms, a.quiet_ms, a.ttl_ms, {lease_until},
               {BEGUN_BIN}, {expiry_bin}, a.target
             FROM asked a CROSS JOIN clock c
            WHERE c.now <= a.not_after AND NOT EXISTS (SELECT FROM {record} r WHERE r.id = a.id)
           {how}
           RETURNING id)"
    )
}

/// What a claim found, and what it made.
fn claimed(record: &str) -> String {
    format!(
        "{THERE} FROM asked a JOIN {record} r ON r.id = a.id
         UNION ALL SELECT 1::smallint, NULL, NULL, NULL, m.id, NULL, NULL, NULL FROM made m"
    )
}

/// The guard of [`complete`] and [`delete`]: the token, and one of the states, or else the exact count.
const GUARD: &str = "r.id = a.id AND r.token = a.token AND r.format = 1
    AND CASE WHEN a.states = 0 THEN r.count = a.count ELSE (a.states >> r.state) & 1 = 1 END";

fn complete(clock: &str, record: &str) -> String {
    format!("{clock}, made AS ({}) {WROTE}", completions(record, 3))
}

/// The update of completions whose parameters begin with `first`. It leaves the bins as they are if it comes soon: a
/// record expires no earlier than its claim foresaw.
fn completions(record: &str, first: usize) -> String {
    let expires_at = after_now("r.ttl_ms");
    let expiry_bin = expiry_bin(&format!("({expires_at})"));
    let expiry_bin = format!(
        "CASE WHEN {expiry_bin} - r.expiry_bin BETWEEN 0 AND {EARLY_BINS} THEN r.expiry_bin
              ELSE {expiry_bin} END"
    );
    let types = ["uuid", "uuid", "integer", "bigint", "smallint", "bytea", "bytea", "uuid"];
    let params = types.iter().zip(first..).map(|(kind, number)| format!("${number}::{kind}[]"));
    let params = params.collect::<Vec<_>>().join(", ");
    format!(
        "UPDATE {record} r
            SET token = COALESCE(a.new_token, r.token),
                count = CASE WHEN a.new_token IS NULL THEN r.count + 1 ELSE 1 END,
                state = 4, lease_until = NULL, unknown_since = NULL, expires_at = {expires_at},
                expiry_bin = {expiry_bin},
                settled_by = a.settled_by, head = a.head, body = a.body
           FROM unnest({params}) AS a (id, token, states, count, settled_by, head, body, new_token), clock c
          WHERE {GUARD}
         RETURNING r.id, r.token, r.count"
    )
}

/// Where the completions begin in the parameters of [`claim_and_complete`].
const FIRST_OF_BOTH: usize = 16;

/// What a guarded write answers: the time, and each id with its revision.
const WROTE: &str = "SELECT 1::smallint, NULL::bigint, NULL::boolean, NULL::bigint, m.id, m.token, m.count FROM made m
    UNION ALL SELECT 0::smallint, c.now, c.clock_held, c.confirmed, NULL, NULL, NULL FROM clock c";

fn delete(clock: &str, record: &str) -> String {
    format!(
        "{clock}, made AS (
           DELETE FROM {record} r
            USING unnest($3::uuid[], $4::uuid[], $5::integer[], $6::bigint[]) AS a (id, token, states, count), clock c
            WHERE {GUARD}
           RETURNING r.id, r.token, r.count)
         {WROTE}"
    )
}

/// A whole record in place of exactly the one that was read. A take obeys its `not_after` at the moment
/// when it has the row, not only when it began to wait for it.
fn put(clock: &str, record: &str) -> String {
    let foreseen = expiry_bin(&format!("({})", after_now("a.ttl_ms")));
    let expiry_bin = expiry_bin("a.expires_at");
    format!(
        "{clock}, made AS (
           UPDATE {record} r
              SET token = a.token, count = a.count, attempt = a.attempt, state = a.state, taken_from = a.taken_from,
                  taken_at = a.taken_at, key = a.key, fingerprint_version = a.fingerprint_version,
                  fingerprint_canonical = a.fingerprint_canonical, fingerprint_raw = a.fingerprint_raw,
                  principal = a.principal, route = a.route, first_claimed_at = a.first_claimed_at,
                  lease_ms = a.lease_ms, quiet_ms = a.quiet_ms, ttl_ms = a.ttl_ms, lease_until = a.lease_until,
                  unknown_since = a.unknown_since, expires_at = a.expires_at, settled_by = a.settled_by,
                  head = a.head, body = a.body, target = a.target, begun_bin = {BEGUN_BIN},
                  expiry_bin = CASE a.state WHEN 1 THEN {foreseen} WHEN 2 THEN {EXPIRY_BIN_LAST} ELSE {expiry_bin} END
             FROM unnest($3::uuid[], $4::uuid[], $5::bigint[], $6::bigint[], $7::uuid[], $8::bigint[], $9::integer[],
                         $10::smallint[], $11::smallint[], $12::bigint[], $13::text[], $14::smallint[], $15::bytea[],
                         $16::bytea[], $17::bytea[], $18::text[], $19::bigint[], $20::bigint[], $21::bigint[],
                         $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[], $26::smallint[], $27::bytea[],
                         $28::bytea[], $29::text[])
                    AS a (id, old_token, old_count, not_after, token, count, attempt, state, taken_from, taken_at, key,
                          fingerprint_version, fingerprint_canonical, fingerprint_raw, principal, route,
                          first_claimed_at, lease_ms, quiet_ms, ttl_ms, lease_until, unknown_since, expires_at,
                          settled_by, head, body, target), clock c
            WHERE r.id = a.id AND r.token = a.old_token AND r.count = a.old_count AND r.format = 1
              AND c.now <= a.not_after AND {WALL} <= a.not_after
           RETURNING r.id, r.token, r.count)
         {WROTE}"
    )
}

/// Whole records where there are none, in the columns that [`put`] has them. Only those that are running are in a bin where
/// such are looked for.
pub(super) fn import(record: &str) -> String {
    let (foreseen, expiry_bin) = (expiry_bin("a.first_claimed_at"), expiry_bin("a.expires_at"));
    format!(
        "INSERT INTO {record} (id, token, count, attempt, state, taken_from, taken_at, key, fingerprint_version,
             fingerprint_canonical, fingerprint_raw, principal, route, first_claimed_at, lease_ms, quiet_ms, ttl_ms,
             lease_until, unknown_since, expires_at, settled_by, head, body, target, begun_bin, expiry_bin)
         SELECT a.id, a.token, a.count, a.attempt, a.state, a.taken_from, a.taken_at, a.key, a.fingerprint_version,
             a.fingerprint_canonical, a.fingerprint_raw, a.principal, a.route, a.first_claimed_at, a.lease_ms,
             a.quiet_ms, a.ttl_ms, a.lease_until, a.unknown_since, a.expires_at, a.settled_by, a.head, a.body,
             a.target, CASE a.state WHEN 1 THEN {BEGUN_BIN} ELSE 0 END,
             CASE a.state WHEN 1 THEN {foreseen} WHEN 2 THEN {EXPIRY_BIN_LAST} ELSE {expiry_bin} END
           FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::integer[], $5::smallint[], $6::smallint[],
                       $7::bigint[], $8::text[], $9::smallint[], $10::bytea[], $11::bytea[], $12::bytea[], $13::text[],
                       $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[],
                       $20::bigint[], $21::smallint[], $22::bytea[], $23::bytea[], $24::text[])
                  AS a (id, token, count, attempt, state, taken_from, taken_at, key, fingerprint_version,
                        fingerprint_canonical, fingerprint_raw, principal, route, first_claimed_at, lease_ms, quiet_ms,
                        ttl_ms, lease_until, unknown_since, expires_at, settled_by, head, body, target)
         ON CONFLICT (id) DO NOTHING"
    )
}

fn load(clock: &str, record: &str) -> String {
    format!(
        "{clock} {THERE} FROM unnest($3::uuid[]) AS a (id) JOIN {record} r ON r.id = a.id UNION ALL {TOLD}"
    )
}

fn renew(clock: &str, record: &str) -> String {
    let lease_until = after_now("$5::bigint");
    format!(
        "{clock}, made AS (
           UPDATE {record} r SET lease_until = {lease_until}, count = r.count + 1
             FROM unnest($3::uuid[], $4::uuid[]) AS a (id, token), clock c
            WHERE r.id = a.id AND r.token = a.token AND r.state = 1 AND r.format = 1
           RETURNING r.id, r.token, r.count)
         {WROTE}"
    )
}

/// The same for the rows that nobody has locked. It locks them first, and so writes twice.
fn renew_free(clock: &str, record: &str) -> String {
    let lease_until = after_now("$5::bigint");
    format!(
        "{clock}, free AS MATERIALIZED (
           SELECT r.id FROM unnest($3::uuid[], $4::uuid[]) AS a (id, token) JOIN {record} r ON r.id = a.id
            WHERE r.token = a.token AND r.state = 1 AND r.format = 1 FOR UPDATE OF r SKIP LOCKED),
         made AS (
           UPDATE {record} r SET lease_until = {lease_until}, count = r.count + 1
             FROM free f, clock c WHERE r.id = f.id
           RETURNING r.id, r.token, r.count)
         {WROTE}"
    )
}

/// Running records in the bins from $6 to $7 and in those of $8, from the bin $3 and the id $4 in it on, each with its
/// bin. It looks at so many that at least one bin is passed, and tells the bin of the transaction that comes next, and the
/// bin that it did not pass.
fn scan_running(clock: &str, record: &str) -> String {
    let look = format!("SELECT r.begun_bin AS bin, r.id, r.state FROM {record} r");
    let there = THERE.replacen("NULL::bigint", "p.bin", 1);
    format!(
        "{clock}, looked AS MATERIALIZED (
           {look} WHERE r.begun_bin >= GREATEST($3::bigint, $6::bigint) AND r.begun_bin <= $7::bigint
            ORDER BY r.begun_bin LIMIT {LOOKED_MAX}),
         edge AS MATERIALIZED (
           SELECT CASE WHEN count(*) = {LOOKED_MAX} THEN GREATEST(max(l.bin), min(l.bin) + 1) END AS bin,
                  CASE WHEN count(*) = {LOOKED_MAX} AND min(l.bin) = max(l.bin) THEN min(l.bin) END AS full_bin
             FROM looked l),
         picked AS MATERIALIZED (
           SELECT p.bin, p.id
             FROM (SELECT l.* FROM looked l, edge e WHERE e.bin IS NULL OR l.bin < e.bin AND e.full_bin IS NULL
                   UNION ALL {look} WHERE r.begun_bin = (SELECT e.full_bin FROM edge e) AND r.state = 1
                   UNION ALL {look} WHERE r.begun_bin = ANY ($8::bigint[]) AND r.begun_bin < $6) p
            WHERE p.state = 1 AND (p.bin, p.id) >= ($3, $4::uuid)
            ORDER BY p.bin, p.id LIMIT $5::bigint)
         {there} FROM picked p JOIN {record} r ON r.id = p.id
         UNION ALL SELECT 1::smallint, {NEXT_BIN}, NULL, NULL, $4, NULL, e.bin, NULL FROM edge e
         UNION ALL {TOLD}"
    )
}

/// More records than a bin has, whose 64 transactions are a batch each. One that has more is read to its end.
const LOOKED_MAX: usize = 64 * super::writer::BATCH_MAX + 1;

/// In which bins records are running, as the others know; the bin of the transaction that comes next, and the bins of
/// all that are under way. Where the numbers of transactions began anew, with the records in another server, nobody
/// knows.
fn horizon(schema: &str) -> String {
    format!(
        "SELECT CASE WHEN m.running_from <= {NEXT_BIN} THEN m.running_from ELSE 1 END, m.running_early, {NEXT_BIN},
                ARRAY (SELECT DISTINCT x.id::text::bigint >> 6 FROM pg_snapshot_xip(pg_current_snapshot()) AS x (id))
           FROM {schema}.meta m WHERE m.one = 1"
    )
}

/// Puts running records that were begun long ago, or in another server, into the bin of this moment, so that no listing
/// has to begin so far back. It changes nothing that anyone guards a write by.
fn move_up(record: &str) -> String {
    format!(
        "WITH old AS MATERIALIZED (
           SELECT r.id FROM unnest($1::uuid[]) AS a (id) JOIN {record} r ON r.id = a.id
            WHERE r.state = 1 AND r.format = 1 AND r.begun_bin NOT BETWEEN {NEXT_BIN} - {OLD_BINS} AND {NEXT_BIN}
              FOR UPDATE OF r SKIP LOCKED)
         UPDATE {record} r SET begun_bin = {BEGUN_BIN} FROM old o WHERE r.id = o.id"
    )
}

/// Bins of which a record is not moved up: 4,096 transactions.
pub(super) const OLD_BINS: i64 = 64;

/// Unknown records, by the index that has only those.
fn scan_unknown(clock: &str, record: &str) -> String {
    format!(
        "{clock}
         ({THERE} FROM {record} r WHERE r.id >= $3::uuid AND r.unknown_since IS NOT NULL
           ORDER BY r.id LIMIT $4::bigint)
         UNION ALL {TOLD}"
    )
}

/// Records in any state: looks at $6 of them at most, and tells the last one that it looked at.
fn scan_all(clock: &str, record: &str) -> String {
    format!(
        "{clock}, looked AS MATERIALIZED (
           SELECT r.id, r.state FROM {record} r WHERE r.id >= $3::uuid ORDER BY r.id LIMIT $6::bigint),
         picked AS MATERIALIZED (
           SELECT l.id FROM looked l WHERE l.state = ANY ($4::smallint[]) ORDER BY l.id LIMIT $5::bigint)
         {THERE} FROM picked p JOIN {record} r ON r.id = p.id
         UNION ALL SELECT 1::smallint, count(*), NULL, NULL, (SELECT l.id FROM looked l ORDER BY l.id DESC LIMIT 1),
             NULL, NULL, NULL FROM looked HAVING count(*) > 0
         UNION ALL {TOLD}"
    )
}

/// What has expired, by the minute or so in which it can at the earliest ([`super::schema`]), at the store's time or at
/// $3, what this node holds to be possible, whichever is earlier.
fn due() -> String {
    let now = "LEAST(c.now, $3::bigint)";
    let expiry_bin = expiry_bin(now);
    format!(
        "NOT c.clock_held AND r.expiry_bin <= {expiry_bin} AND r.expires_at <= {now} AND r.state IN (3, 4) AND r.format = 1"
    )
}

/// The row that is locked is judged again: someone may have taken it since.
fn sweep(clock: &str, record: &str) -> String {
    let due = due();
    format!(
        "{clock}, due AS MATERIALIZED (
           SELECT r.id FROM clock c, {record} r WHERE {due} LIMIT $4::bigint FOR UPDATE OF r SKIP LOCKED),
         gone AS (DELETE FROM {record} r USING due d WHERE r.id = d.id RETURNING 1)
         SELECT c.now, c.clock_held, c.confirmed, (SELECT count(*) FROM gone) FROM clock c"
    )
}

fn more(clock: &str, record: &str) -> String {
    let due = due();
    format!(
        "{clock} SELECT c.now, c.clock_held, c.confirmed, EXISTS (SELECT FROM {record} r WHERE {due})::integer::bigint
           FROM clock c"
    )
}

/// Keeps the highest time that was seen, and says that it jumped if this node saw that ($3) and nobody has
/// confirmed the clock since. A jump is told durably, because others rely on it. A time that this node does not
/// trust ($5), or that is later than it holds to be possible ($4), is not kept: whoever starts next must not trust
/// it either. That it is late may be our own delay, which is for us to judge when the answer is here.
///
/// It also keeps the bins in which records are running ($6 and after, and $7), unless others know later ones. Those of
/// another server are forgotten at once: its numbers will be passed here, and be mistaken for our own.
fn beat(clock: &str, schema: &str) -> String {
    let jumped = "($3::boolean AND c.confirmed = $1)";
    let is_wrong = format!("m.running_from > {NEXT_BIN}");
    let is_later = format!("($6::bigint > m.running_from OR $6 IS NOT NULL AND {is_wrong})");
    let durable = durable(&format!("CASE WHEN {jumped} THEN 'on' ELSE 'off' END"));
    format!(
        "{clock} UPDATE {schema}.meta m
            SET highest = CASE WHEN {jumped} OR $5::boolean AND c.now <= $4::bigint THEN {HIGHEST} ELSE m.highest END,
                running_from = CASE WHEN {is_later} THEN $6 WHEN {is_wrong} THEN 1 ELSE m.running_from END,
                running_early = CASE WHEN {is_later} THEN $7::bigint[] ELSE m.running_early END,
                clock_held = m.clock_held OR {jumped} AND m.confirmed = c.confirmed
           FROM clock c WHERE m.one = 1 AND {durable}
         RETURNING {HIGHEST}, m.clock_held, m.confirmed, 0::bigint"
    )
}

/// Who trusts the clock again trusts what it says now, however far back that is.
fn hold(clock: &str, schema: &str) -> String {
    let durable = durable("'on'");
    format!(
        "{clock} UPDATE {schema}.meta m
            SET clock_held = $3::boolean, highest = CASE WHEN $3 THEN {HIGHEST} ELSE {WALL} END,
                confirmed = m.confirmed + CASE WHEN $3 THEN 0 ELSE 1 END
           FROM clock c WHERE m.one = 1 AND {durable}
         RETURNING m.highest, m.clock_held, m.confirmed, 0::bigint"
    )
}

/// The row may have changed since the time was read: what was read before someone confirmed the clock is not
/// written after it.
const HIGHEST: &str =
    "CASE WHEN m.confirmed = c.confirmed THEN GREATEST(m.highest, c.now) ELSE m.highest END";

/// True; and the commit of this very statement waits for the disk or does not, whatever its session is set to.
fn durable(how: &str) -> String {
    format!("set_config('synchronous_commit', {how}, true) IS NOT NULL")
}
