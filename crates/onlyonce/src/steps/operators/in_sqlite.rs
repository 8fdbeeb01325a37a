//! The statements of operators in a SQLite file.

use std::sync::Arc;

use rusqlite::{Connection, Row, params};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::{CallAgain, PAGE_ROWS_MAX, StepsFilter, StoredPoint, StoredSteps, judged};
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::steps::error::told;
use crate::steps::over_rusqlite::tables::{self, Fault};
use crate::steps::over_rusqlite::turn;
use crate::steps::{StepsError, StepsState};
use crate::transaction::Reply;

#[derive(Debug)]
pub(super) struct InSqlite(Arc<Mutex<Connection>>);

impl InSqlite {
    pub(super) fn new(connection: Connection) -> Result<Self, StepsError> {
        tables::require_version(&connection)?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    pub(super) async fn list(
        &self,
        filter: StepsFilter<'_>,
        after: Option<&StoredSteps>,
    ) -> Result<Vec<StoredSteps>, StepsError> {
        let with_completed = filter.with_completed();
        let StepsFilter { state, name, key, id } = filter;
        let [name, key, id] = [name, key, id].map(|part| part.map(str::to_owned));
        let after = after.map(|last| (last.since.as_ms(), last.id.clone())).unzip();
        self.on(move |db| {
            let mut list = db.prepare_cached(LIST)?;
            let state = state.map(StepsState::name);
            let rows = list.query_map(
                params![state, name, key, id, with_completed, after.0, after.1, PAGE_ROWS_MAX],
                stored,
            )?;
            let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
            for row in &mut rows {
                note_unreadable(db, row)?;
            }
            Ok(rows)
        })
        .await
    }

    pub(super) async fn points(&self, id: &str) -> Result<Vec<StoredPoint>, StepsError> {
        let id = id.to_owned();
        self.on(move |db| {
            let mut points = db.prepare_cached(
                "SELECT name, value, committed_at FROM main.onlyonce_point WHERE operation = ?1 ORDER BY number",
            )?;
            let rows = points.query_map([id], |row| {
                let committed_at = StoreTime::from_ms(row.get(2)?);
                let (name, value) = (text(row, "name")?, text(row, "value")?);
                Ok(StoredPoint { name, value, committed_at })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    pub(super) async fn retry(
        &self,
        id: &str,
        again: CallAgain,
        note: &str,
    ) -> Result<bool, StepsError> {
        let (revision, is_forced) = again.parts();
        let (id, note, now) = (id.to_owned(), note.to_owned(), SystemClock.wall().as_ms());
        self.on(move |db| {
            tables::written(db, |db| {
                let count = db.execute(RETRY, params![id, revision, is_forced, note, now])?;
                Ok(count == 1)
            })
        })
        .await
    }

    pub(super) async fn settle(
        &self,
        id: &str,
        reply: &Reply,
        note: &str,
    ) -> Result<bool, StepsError> {
        let (id, note, now) = (id.to_owned(), note.to_owned(), SystemClock.wall().as_ms());
        let (status, headers, body) =
            (reply.status.as_u16(), reply.headers_json(), reply.body.to_vec());
        self.on(move |db| {
            tables::written(db, |db| {
                let count = db.execute(SETTLE, params![id, status, headers, body, note, now])?;
                Ok(count == 1)
            })
        })
        .await
    }

    async fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StepsError> {
        let connection = turn(&self.0).await?;
        let worked = spawn_blocking(move || work(&connection)).await;
        Ok(worked.map_err(|error| StepsError::Database(error.into()))??)
    }
}

/// As much of it as can be read.
fn stored(row: &Row<'_>) -> rusqlite::Result<StoredSteps> {
    let since: i64 = row.get("since")?;
    let (status, headers): (Option<i32>, _) = (row.get("status")?, optional_text(row, "headers")?);
    let answer = status.map(|status| (status, headers.as_deref().unwrap_or_default()));
    let (state, unreadable) = judged(&text(row, "state")?, answer);
    Ok(StoredSteps {
        id: text(row, "id")?,
        name: text(row, "name")?,
        key: text(row, "key")?,
        state,
        since: StoreTime::from_ms(since),
        since_us: since.saturating_mul(1_000),
        begun_at: StoreTime::from_ms(row.get("begun_at")?),
        due_at: row.get::<_, Option<i64>>("due_at")?.map(StoreTime::from_ms),
        attempts: u32::try_from(row.get::<_, i64>("attempts")?).unwrap_or_default(),
        point: optional_text(row, "point")?,
        calling: optional_text(row, "calling")?,
        is_repeatable: row.get("repeatable")?,
        revision: row.get("revision")?,
        quiet_until: row.get::<_, Option<i64>>("quiet_until")?.map(StoreTime::from_ms),
        error: optional_text(row, "error")?,
        note: optional_text(row, "note")?,
        status: status.and_then(|status| u16::try_from(status).ok()),
        request: text(row, "request")?,
        unreadable,
    })
}

/// In SQLite a text may be any bytes: whoever does the steps judges that, points included.
fn note_unreadable(db: &Connection, stored: &mut StoredSteps) -> Result<(), Fault> {
    match tables::load(db, &stored.id) {
        Err(Fault::Failed(StepsError::Unreadable { error, .. })) => {
            stored.unreadable.get_or_insert_with(|| told(&*error));
            Ok(())
        }
        loaded => loaded.map(drop),
    }
}

fn text(row: &Row<'_>, column: &str) -> rusqlite::Result<String> {
    Ok(optional_text(row, column)?.unwrap_or_default())
}

fn optional_text(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// As `sql/list.sql`.
const LIST: &str = "
    SELECT s.*, iif(s.calling IS NULL, NULL, s.since + s.quiet_ms) AS quiet_until,
           (SELECT p.name FROM main.onlyonce_point p WHERE p.operation = s.id ORDER BY p.number DESC LIMIT 1) AS point
      FROM main.onlyonce_steps s
     WHERE (?1 IS NULL OR s.state = ?1) AND (?2 IS NULL OR s.name = ?2) AND (?3 IS NULL OR s.key = ?3)
       AND (?4 IS NULL OR s.id = ?4) AND (?5 OR s.state <> 'completed')
       AND (?6 IS NULL OR (s.since, s.id) > (?6, ?7))
     ORDER BY s.since, s.id LIMIT ?8";
/// As the functions `steps_retry` and `steps_settle` of Postgres.
const RETRY: &str = "
    UPDATE main.onlyonce_steps
       SET state = 'waiting', since = iif(state = 'waiting', since, ?5), revision = revision + 1, due_at = ?5,
           attempts = 0, calling = iif(?2 IS NULL, calling, NULL), repeatable = repeatable AND ?2 IS NULL, note = ?4
     WHERE id = ?1 AND state IN ('waiting', 'stuck', 'unknown')
       AND iif(?2 IS NULL, calling IS NULL OR repeatable,
               revision = ?2 AND (?3 OR calling IS NULL OR since + quiet_ms <= ?5))";
const SETTLE: &str = "
    UPDATE main.onlyonce_steps
       SET state = 'completed', since = ?6, revision = revision + 1, token = NULL, due_at = NULL, calling = NULL,
           repeatable = 0, status = ?2, headers = ?3, body = ?4, expires_at = ?6 + ttl_ms, note = ?5
     WHERE id = ?1 AND (state IN ('waiting', 'stuck', 'unknown') OR state = 'running' AND due_at <= ?6)";
