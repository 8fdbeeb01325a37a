//! The tables in the caller's file: compared and swapped, in transactions that take the write lock first.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::is_busy;
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::hex::uuid_text;
use crate::record::Token;
use crate::steps::StepsState;
use crate::steps::database::{Change, Chosen};
use crate::steps::error::StepsError;
use crate::steps::held::{Answer, Calling, Draft, Guard, Held, Next, points};
use crate::store::BoxError;
use crate::transaction::TransactionError;
use crate::transaction::over_rusqlite::settings;

/// Makes the tables if there are none.
pub(in crate::steps) fn prepare(db: &Connection) -> Result<(), StepsError> {
    written(db, |db| {
        let made = "SELECT count(*) FROM main.sqlite_master WHERE name = 'onlyonce_steps_schema'";
        if db.query_row(made, [], |row| row.get::<_, i64>(0))? == 0 {
            db.execute_batch(include_str!("tables.sql"))?;
        }
        Ok(())
    })?;
    require_version(db)
}

/// Refuses tables that another version has made.
pub(in crate::steps) fn require_version(db: &Connection) -> Result<(), StepsError> {
    let version = "SELECT version FROM main.onlyonce_steps_schema";
    let version: Option<i64> =
        db.query_row(version, [], |row| row.get(0)).optional().map_err(Fault::from)?;
    if version == Some(VERSION) { Ok(()) } else { Err(StepsError::OtherVersion) }
}

/// Does the writes in a transaction, and commits it.
pub(in crate::steps) fn written<T>(
    db: &Connection,
    write: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    begin(db)?;
    let ended = write(db).and_then(|value| match db.execute_batch("COMMIT") {
        Ok(()) => Ok(value),
        Err(error) if is_busy(&error) => Err(Fault::Busy(error)),
        // It is rolled back below, and may be in the log all the same: a crash would bring it back.
        Err(error) => Err(Fault::Unsure(error)),
    });
    if ended.is_err() && !db.is_autocommit() {
        db.execute_batch("ROLLBACK")?;
    }
    ended
}

/// Begins a transaction, with the write lock, on a connection that commits durably.
pub(in crate::steps) fn begin(db: &Connection) -> Result<(), Fault> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    settings::check_writing(db).map_err(|stop| {
        let error = StepsError::Setting(TransactionError::from(stop).into());
        match db.execute_batch("ROLLBACK") {
            Ok(()) => Fault::Failed(error),
            Err(error) => error.into(),
        }
    })
}

pub(in crate::steps) fn load(db: &Connection, id: &str) -> Result<Option<Held>, Fault> {
    let mut read = db.prepare_cached(&format!("{COLUMNS} WHERE s.id = ?1"))?;
    let held = read.query_row([id], |row| Ok(held(row))).optional()?;
    Ok(held.transpose()?)
}

/// Each by itself: one that cannot be read keeps no others waiting.
pub(in crate::steps) fn due(
    db: &Connection,
    names: &[String],
    passed_over: &[String],
    rows_max: usize,
) -> Result<Vec<Result<Held, StepsError>>, Fault> {
    let sql = format!(
        "{COLUMNS} WHERE s.due_at <= ?1 AND s.name IN (SELECT value FROM json_each(?2))
            AND s.id NOT IN (SELECT value FROM json_each(?4))
          ORDER BY s.due_at LIMIT ?3"
    );
    let mut read = db.prepare_cached(&sql)?;
    let list = |texts: &[String]| serde_json::Value::from(texts).to_string();
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    let values = params![now().as_ms(), list(names), rows_max, list(passed_over)];
    let rows = read.query_map(values, |row| Ok(held(row)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(in crate::steps) fn insert(
    db: &Connection,
    draft: &Draft,
    token: Token,
    lease_ms: i64,
    expired: Option<i64>,
) -> Result<bool, Fault> {
    let now = now();
    if let Some(revision) = expired {
        let delete =
            "DELETE FROM main.onlyonce_steps WHERE id = ?1 AND revision = ?2 AND expires_at <= ?3";
        db.prepare_cached(delete)?.execute(params![draft.id, revision, now.as_ms()])?;
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO main.onlyonce_steps
           (id, name, scope, principal, key, fingerprint, ttl_ms, request, begun_at, state, since, revision, token,
            due_at, attempts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'running', ?9, ?10, ?11, ?12, 1)
         ON CONFLICT DO NOTHING",
    )?;
    let Draft { id, name, scope, principal, key, fingerprint, ttl_ms, request, revision } = draft;
    let (ttl_ms, begun_at, due_at) = (*ttl_ms as i64, now.as_ms(), now.plus_ms(lease_ms).as_ms());
    let token = text(token);
    let count = insert.execute(params![
        id,
        name,
        scope,
        principal,
        key,
        fingerprint,
        ttl_ms,
        request,
        begun_at,
        revision,
        token,
        due_at
    ])?;
    Ok(count == 1)
}

pub(in crate::steps) fn swap(
    db: &Connection,
    id: &str,
    guard: Guard,
    next: &Next,
) -> Result<bool, Fault> {
    let now = now();
    let mut update = db.prepare_cached(
        "UPDATE main.onlyonce_steps
            SET state = ?4, since = iif(state = ?4, since, ?5), revision = revision + 1, token = ?6, due_at = ?7,
                attempts = ?8, calling = ?9, repeatable = ?10, quiet_ms = ?11, error = coalesce(?12, error)
          WHERE id = ?1 AND revision = ?2 AND state <> 'completed' AND iif(?3 IS NULL, due_at <= ?5, token = ?3)",
    )?;
    let count = update.execute(params![
        id,
        guard.revision,
        guard.owner.map(text),
        next.state.name(),
        now.as_ms(),
        next.token.map(text),
        next.due_ms.map(|ms| now.plus_ms(ms).as_ms()),
        next.attempts,
        next.calling.as_ref().map(|calling| &calling.name),
        next.calling.as_ref().is_some_and(|calling| calling.is_repeatable),
        next.quiet_ms,
        next.error,
    ])?;
    Ok(count == 1)
}

pub(in crate::steps) fn take(
    db: &Connection,
    chosen: Vec<(Held, Chosen)>,
) -> Result<Vec<(Held, Token)>, Fault> {
    let mut taken = Vec::new();
    for (held, chosen) in chosen {
        let guard = Guard { revision: held.revision, owner: None };
        let is_written = swap(db, &held.id, guard, &chosen.next)?;
        if let (true, Some(token)) = (is_written, chosen.taken) {
            taken.push((held, token));
        }
    }
    Ok(taken)
}

pub(in crate::steps) fn renew(
    db: &Connection,
    id: &str,
    owner: Token,
    lease_ms: i64,
) -> Result<bool, Fault> {
    let due_at = now().plus_ms(lease_ms).as_ms();
    let renew = "UPDATE main.onlyonce_steps SET due_at = ?3 WHERE id = ?1 AND token = ?2";
    Ok(db.prepare_cached(renew)?.execute(params![id, text(owner), due_at])? == 1)
}

/// Writes the change if the guard holds, in the open transaction.
pub(in crate::steps) fn change(
    db: &Connection,
    id: &str,
    guard: Guard,
    change: &Change,
) -> rusqlite::Result<bool> {
    let (now, owner) = (now(), guard.owner.map(text));
    match change {
        Change::Point { number, name, value, lease_ms } => {
            let mut update = db.prepare_cached(
                "UPDATE main.onlyonce_steps SET revision = revision + 1, due_at = ?4, attempts = 0, calling = NULL,
                        repeatable = 0
                  WHERE id = ?1 AND revision = ?2 AND token = ?3",
            )?;
            let due_at = now.plus_ms(*lease_ms).as_ms();
            if update.execute(params![id, guard.revision, owner, due_at])? == 0 {
                return Ok(false);
            }
            let mut insert = db.prepare_cached(
                "INSERT INTO main.onlyonce_point (operation, number, name, value, committed_at)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            insert.execute(params![id, *number as i64, name, value, now.as_ms()])?;
            Ok(true)
        }
        Change::Finish(reply) => {
            let mut update = db.prepare_cached(
                "UPDATE main.onlyonce_steps
                    SET state = 'completed', since = ?4, revision = revision + 1, token = NULL, due_at = NULL,
                        calling = NULL, repeatable = 0, status = ?5, headers = ?6, body = ?7, expires_at = ?4 + ttl_ms
                  WHERE id = ?1 AND revision = ?2 AND token = ?3",
            )?;
            let (status, headers) = (reply.status.as_u16(), reply.headers_json());
            let count = update.execute(params![
                id,
                guard.revision,
                owner,
                now.as_ms(),
                status,
                headers,
                &reply.body[..]
            ])?;
            Ok(count == 1)
        }
    }
}

pub(in crate::steps) fn add_message(
    db: &Connection,
    operation: &str,
    (topic, key, payload): (&str, Option<&str>, &[u8]),
) -> rusqlite::Result<String> {
    let id = text(Token::random());
    let mut insert = db.prepare_cached(
        "INSERT INTO main.onlyonce_outbox (id, operation, topic, key, payload, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    insert.execute(params![id, operation, topic, key, payload, now().as_ms()])?;
    Ok(id)
}

/// Why something was not read or written.
pub(in crate::steps) enum Fault {
    /// Another connection has the lock.
    Busy(rusqlite::Error),
    /// Nothing was written.
    Failed(StepsError),
    /// The commit failed.
    Unsure(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        if is_busy(&error) {
            return Self::Busy(error);
        }
        // SQLite has no code for it.
        if error.to_string().contains("no such table: main.onlyonce_") {
            return Self::Failed(StepsError::NotInstalled(error.into()));
        }
        Self::Failed(StepsError::Database(error.into()))
    }
}

impl From<StepsError> for Fault {
    fn from(error: StepsError) -> Self {
        Self::Failed(error)
    }
}

impl From<Fault> for StepsError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Busy(error) | Fault::Unsure(error) => Self::Database(error.into()),
            Fault::Failed(error) => error,
        }
    }
}

/// A row and its points, in one statement.
const COLUMNS: &str = "
    SELECT s.id, s.name, s.fingerprint, s.request, s.state, s.since, s.revision, s.due_at, s.attempts, s.calling,
           s.repeatable, s.error, s.status, s.headers, s.body, s.expires_at,
           (SELECT json_group_array(json_array(p.name, p.value))
              FROM (SELECT name, value FROM main.onlyonce_point WHERE operation = s.id ORDER BY number) p) AS points
      FROM main.onlyonce_steps s";

fn held(row: &Row<'_>) -> Result<Held, StepsError> {
    read(row).map_err(|error| {
        let operation = row.get("id").unwrap_or_default();
        StepsError::Unreadable { operation, error }
    })
}

fn read(row: &Row<'_>) -> Result<Held, BoxError> {
    let state: String = row.get("state")?;
    let state = StepsState::of(&state).ok_or_else(|| format!("its state is {state:?}"))?;
    let points = points(&row.get::<_, String>("points")?)?;
    let answer = match (row.get("status")?, row.get::<_, Option<i64>>("expires_at")?) {
        (Some(status), Some(expires_at)) => Some(Answer {
            status,
            headers: row.get("headers")?,
            body: row.get("body")?,
            expires_at: StoreTime::from_ms(expires_at),
        }),
        _ => None,
    };
    Ok(Held {
        id: row.get("id")?,
        name: row.get("name")?,
        fingerprint: row.get("fingerprint")?,
        request: row.get("request")?,
        state,
        since: StoreTime::from_ms(row.get("since")?),
        revision: row.get("revision")?,
        due_at: row.get::<_, Option<i64>>("due_at")?.map(StoreTime::from_ms),
        attempts: row.get("attempts")?,
        calling: Calling::of(row.get("calling")?, row.get("repeatable")?),
        error: row.get("error")?,
        points,
        answer,
        now: now(),
    })
}

fn now() -> StoreTime {
    SystemClock.wall()
}

fn text(token: Token) -> String {
    uuid_text(*token.as_bytes())
}

/// The version of the tables. 1: with a cascade instead of a trigger; it was never released.
const VERSION: i64 = 2;
