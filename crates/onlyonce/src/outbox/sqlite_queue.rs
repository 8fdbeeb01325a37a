//! The messages of a SQLite file, as a relay sees them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use tokio::time::Instant;
use uuid::Uuid;

use super::Message;
use super::options::{RETRY_PAUSE_MAX, RelayOptions};
use super::queue::{Ask, Found, LANES_MAX, Lane, Leased, NewlyParked, Queue, Settled, Verdict};
use super::sqlite_file::{OutboxFile, OutboxFileError};
use crate::clock::{Clock, StoreTime, SystemClock, as_ms};
use crate::record::Token;
use crate::store::BoxError;

/// The relay's statements, on a thread. Time is that of this machine.
#[derive(Debug)]
pub(super) struct SqliteQueue {
    file: OutboxFile,
}

impl SqliteQueue {
    pub(super) async fn open(path: &Path) -> Result<Self, OutboxFileError> {
        Ok(Self { file: OutboxFile::open(path).await? })
    }

    async fn lease_due(&mut self, ask: &Ask, lease_max: Duration) -> Result<Found, BoxError> {
        let (asked_at, lease) = (Instant::now(), Uuid::from_bytes(*Token::random().as_bytes()));
        let (ask, lease_ms) = (ask.clone(), as_ms(lease_max));
        let call = move |db: &mut Connection| {
            let now = SystemClock.wall();
            let (due, next) = due_heads(db, &ask, now)?;
            Ok((lease_all(db, &due, lease, lease_ms, now)?, next))
        };
        let (messages, stopped) = self.file.run(call).await?;
        let leased = |(id, is_suspect, message)| Leased {
            message: Arc::new(message),
            id,
            lease,
            is_suspect,
            asked_at,
        };
        Ok(Found { leased: messages.into_iter().map(leased).collect(), stopped })
    }

    async fn write_down(
        &mut self,
        settled: &mut Vec<Settled>,
        options: &RelayOptions,
    ) -> Result<Vec<NewlyParked>, BoxError> {
        let ended: Vec<_> = settled.iter().map(Ended::of).collect();
        let pauses = Pauses {
            attempts_max: options.attempts_max,
            first_ms: as_ms(options.retry_pause),
            longest_ms: as_ms(RETRY_PAUSE_MAX),
        };
        let parked = self.file.run(move |db| settle_all(db, &ended, &pauses)).await?;
        settled.clear();
        Ok(parked)
    }
}

impl Queue for SqliteQueue {
    fn lease<'a>(
        &'a mut self,
        ask: &'a Ask,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Found, BoxError>> {
        Box::pin(self.lease_due(ask, lease))
    }

    fn settle<'a>(
        &'a mut self,
        settled: &'a mut Vec<Settled>,
        options: &'a RelayOptions,
    ) -> BoxFuture<'a, Result<Vec<NewlyParked>, BoxError>> {
        Box::pin(self.write_down(settled, options))
    }
}

/// The first message of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    position: i64,
    is_suspect: bool,
}

/// The messages that are asked for, and where to go on: `None` after the last lane. It only reads: a relay that finds nothing
/// is in no writer's way. As `sql/lease.sql`.
fn due_heads(
    db: &Connection,
    ask: &Ask,
    now: StoreTime,
) -> rusqlite::Result<(Vec<Head>, Option<Lane>)> {
    let (mut others, mut suspects, mut lane) = (Vec::new(), Vec::new(), ask.after.clone());
    let mut stopped = None;
    for _ in 0..LANES_MAX {
        let Some((next, head, due_at)) = next_head(db, ask, &lane)? else {
            stopped = None;
            break;
        };
        lane = next;
        let is_due = due_at <= now.as_ms() && !ask.except.contains(&lane.0);
        match head.is_suspect {
            true if is_due && suspects.len() < ask.suspects_max => suspects.push(head),
            false if is_due => others.push(head),
            _ => {}
        }
        stopped = Some(lane.clone());
        let found = others.len() + if ask.is_probe { 0 } else { suspects.len() };
        if found >= ask.rows_max {
            break;
        }
    }
    // Of a probe, those that are left are for suspects.
    let heads = others.into_iter().chain(suspects).take(ask.rows_max);
    Ok((heads.collect(), stopped))
}

/// The first message of the lane after this one, and when it is due.
fn next_head(
    db: &Connection,
    ask: &Ask,
    after: &Lane,
) -> rusqlite::Result<Option<(Lane, Head, i64)>> {
    let sql = match (&ask.topic, &ask.lanes) {
        (None, _) => NEXT,
        (Some(_), None) => NEXT_IN_TOPIC,
        (Some(_), Some(_)) => IN_LANE,
    };
    let topic = ask.topic.as_ref().unwrap_or(&after.0);
    let mut next = db.prepare_cached(sql)?;
    let Some(lanes) = &ask.lanes else {
        return next.query_row([topic, &after.1], head).optional();
    };
    let mut lanes: Vec<_> = lanes.iter().filter(|lane| **lane > after.1).collect();
    lanes.sort_unstable();
    for lane in lanes {
        if let Some(found) = next.query_row([topic, lane], head).optional()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn head(row: &Row<'_>) -> rusqlite::Result<(Lane, Head, i64)> {
    let head = Head { position: row.get(2)?, is_suspect: row.get(4)? };
    Ok(((row.get(0)?, row.get(1)?), head, row.get(3)?))
}

/// Leases those of the messages that are still there and due. One that was the first of its lane still is: messages come to
/// a lane at its end alone.
fn lease_all(
    db: &mut Connection,
    heads: &[Head],
    lease: Uuid,
    lease_ms: i64,
    now: StoreTime,
) -> rusqlite::Result<Vec<(Uuid, bool, Message)>> {
    if heads.is_empty() {
        return Ok(Vec::new());
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut messages, until) = (Vec::with_capacity(heads.len()), now.plus_ms(lease_ms));
    {
        let mut update = transaction.prepare_cached(LEASE)?;
        for Head { position, is_suspect } in heads {
            let values = params![position, lease.as_bytes(), until.as_ms(), now.as_ms()];
            let leased = update.query_row(values, |row| message(row, now)).optional()?;
            messages.extend(leased.map(|(id, message)| (id, *is_suspect, message)));
        }
    }
    transaction.commit()?;
    Ok(messages)
}

fn message(row: &Row<'_>, leased_at: StoreTime) -> rusqlite::Result<(Uuid, Message)> {
    let id: String = row.get(0)?;
    // A row that somebody made by hand may have another id; it is shipped all the same.
    let uuid = Uuid::try_parse(&id).unwrap_or_default();
    let message = Message {
        id,
        topic: row.get(1)?,
        key: row.get(2)?,
        payload: row.get::<_, Vec<u8>>(3)?.into(),
        created_at: StoreTime::from_ms(row.get(4)?),
        leased_at,
        refusals: count(row, 5)?,
    };
    Ok((uuid, message))
}

/// As near as a row tells it: one that somebody has changed by hand must not stop a relay, or hide others.
pub(super) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u32> {
    let count: i64 = row.get(column)?;
    Ok(u32::try_from(count.max(0)).unwrap_or(u32::MAX))
}

/// What came of a message, for the thread.
struct Ended {
    id: String,
    lease: Uuid,
    verdict: Verdict,
    error: Option<String>,
}

impl Ended {
    fn of(settled: &Settled) -> Self {
        let Settled { leased, verdict, error } = settled;
        let (id, lease) = (leased.message.id.clone(), leased.lease);
        Self { id, lease, verdict: *verdict, error: error.clone() }
    }
}

/// When a message that was refused is due again.
struct Pauses {
    attempts_max: i32,
    first_ms: i64,
    longest_ms: i64,
}

fn settle_all(
    db: &mut Connection,
    ended: &[Ended],
    pauses: &Pauses,
) -> rusqlite::Result<Vec<NewlyParked>> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut parked, now) = (Vec::new(), SystemClock.wall());
    for Ended { id, lease, verdict, error } in ended {
        let lease = lease.as_bytes();
        match verdict {
            Verdict::Shipped => {
                transaction.prepare_cached(SHIPPED)?.execute(params![id, lease])?;
            }
            Verdict::Later(pause) => {
                let due_at = now.plus(*pause).as_ms();
                transaction
                    .prepare_cached(GIVEN_BACK)?
                    .execute(params![id, lease, error, due_at])?;
            }
            Verdict::Refused => {
                let Pauses { attempts_max, first_ms, longest_ms } = pauses;
                let values =
                    params![id, lease, error, now.as_ms(), attempts_max, first_ms, longest_ms];
                let mut refused = transaction.prepare_cached(REFUSED)?;
                let topic = refused.query_row(values, |row| row.get(0)).optional()?.flatten();
                parked.extend(topic.map(|topic| NewlyParked { id: id.clone(), topic }));
            }
        }
    }
    transaction.commit()?;
    Ok(parked)
}

/// The first message of the next lane: one probe of the index, however long the lanes are.
const NEXT: &str = "\
    SELECT topic, lane, position, due_at, error IS NOT NULL FROM main.onlyonce_outbox
     WHERE (topic, lane) > (?1, ?2) ORDER BY topic, lane, position LIMIT 1";
const NEXT_IN_TOPIC: &str = "\
    SELECT topic, lane, position, due_at, error IS NOT NULL FROM main.onlyonce_outbox
     WHERE topic = ?1 AND lane > ?2 ORDER BY lane, position LIMIT 1";
const IN_LANE: &str = "\
    SELECT topic, lane, position, due_at, error IS NOT NULL FROM main.onlyonce_outbox
     WHERE topic = ?1 AND lane = ?2 ORDER BY position LIMIT 1";
/// Whether it is still due is judged again under the write lock.
const LEASE: &str = "\
    UPDATE main.onlyonce_outbox SET lease = ?2, due_at = ?3 WHERE position = ?1 AND due_at <= ?4
    RETURNING id, topic, key, payload, created_at, attempts";
/// If the lease is not ours any more, another relay ships the message again and deletes it.
const SHIPPED: &str = "DELETE FROM main.onlyonce_outbox WHERE id = ?1 AND lease = ?2";
const GIVEN_BACK: &str = "\
    UPDATE main.onlyonce_outbox SET lease = NULL, error = ?3, due_at = ?4 WHERE id = ?1 AND lease = ?2";
/// The pause begins with ?6 ms and doubles up to ?7 ms; the refusal that makes ?5 parks the message, and returns its topic.
const REFUSED: &str = "\
    UPDATE main.onlyonce_outbox
       SET lease = NULL, error = ?3, attempts = attempts + 1,
           parked_at = CASE WHEN attempts + 1 >= ?5 THEN ?4 END,
           due_at = CASE WHEN attempts + 1 >= ?5 THEN 9223372036854775807
                         ELSE ?4 + min(?6 << min(attempts, 40), ?7) END
     WHERE id = ?1 AND lease = ?2
    RETURNING CASE WHEN parked_at IS NOT NULL THEN topic END";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::queue::Walk;

    // threat J10: two relays have found the same message.
    #[test]
    fn a_message_that_another_relay_has_leased_meanwhile_is_not_leased() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Connection::open(folder.path().join("shop.db")).unwrap();
        let (mut one, mut two) = (open(), open());
        one.execute_batch(include_str!("../transaction/over_rusqlite/tables.sql")).unwrap();
        let add = "INSERT INTO onlyonce_outbox (id, operation, topic, payload, created_at) VALUES (?1, '', 't', x'', 0)";
        one.execute(add, [Uuid::from_u128(1).to_string()]).unwrap();
        let now = SystemClock.wall();
        let ask = Ask { rows_max: 16, ..Ask::default() };
        let find = |db: &Connection| due_heads(db, &ask, now).unwrap().0;
        let (found_by_one, found_by_two) = (find(&one), find(&two));
        assert_eq!((found_by_one.len(), &found_by_one), (1, &found_by_two));
        let lease = |db: &mut Connection, now| {
            lease_all(db, &found_by_one, Uuid::from_u128(7), 1_000, now).unwrap().len()
        };
        assert_eq!(lease(&mut one, now), 1);
        assert_eq!(lease(&mut two, now), 0);
        assert_eq!(lease(&mut two, now.plus_ms(1_000)), 1, "the lease is over");
    }

    #[tokio::test]
    async fn a_relay_is_idle_after_one_look_at_thousands_of_keys_that_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(include_str!("../transaction/over_rusqlite/tables.sql")).unwrap();
        let waiting = "
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2500)
            INSERT INTO onlyonce_outbox (id, operation, topic, payload, created_at, due_at)
            SELECT format('%036d', n), '', 't', x'', 0, 9223372036854775806 FROM numbers";
        db.execute_batch(waiting).unwrap();
        let mut queue = SqliteQueue::open(&path).await.unwrap();
        let mut walk = Walk::default();
        for is_idle in [false, false, true, false, false, true] {
            let ask = Ask { rows_max: 16, after: walk.go_on(), ..Ask::default() };
            let found = queue.lease_due(&ask, Duration::from_secs(30)).await.unwrap();
            assert!(found.leased.is_empty());
            assert_eq!(walk.note(false, found.stopped), is_idle);
        }
    }

    #[test]
    fn the_next_lane_is_found_by_a_probe_of_the_index() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("../transaction/over_rusqlite/tables.sql")).unwrap();
        let probes = [
            (NEXT, "(topic,lane)>(?,?)"),
            (NEXT_IN_TOPIC, "topic=? AND lane>?"),
            (IN_LANE, "topic=? AND lane=?"),
        ];
        for (sql, probe) in probes {
            let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan = explain.query_map(["t", "=k"], |row| row.get::<_, String>(3)).unwrap();
            let plan: Vec<_> = plan.map(Result::unwrap).collect();
            // One step, so nothing is sorted.
            assert_eq!(plan.len(), 1, "{plan:?}");
            assert!(
                plan[0].contains("onlyonce_outbox_lane") && plan[0].contains(probe),
                "{plan:?}"
            );
        }
    }
}
