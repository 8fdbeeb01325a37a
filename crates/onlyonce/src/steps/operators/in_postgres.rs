//! The statements of operators in Postgres.

use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{CallAgain, PAGE_ROWS_MAX, StepsFilter, StoredPoint, StoredSteps, judged};
use crate::clock::StoreTime;
use crate::steps::{StepsError, StepsState};
use crate::store::BoxError;
use crate::store::postgres::{PostgresOpenError, PreparedConnection};
use crate::transaction::Reply;

#[derive(Debug)]
pub(super) struct InPostgres(Mutex<PreparedConnection>);

impl InPostgres {
    pub(super) async fn open(url: &str) -> Result<Self, PostgresOpenError> {
        let texts = [
            include_str!("../sql/list.sql"),
            include_str!("../sql/points.sql"),
            "SELECT {schema}.steps_retry($1::uuid, $2, $3, $4) AS is_done",
            "SELECT {schema}.steps_settle($1::uuid, $2, $3::text::jsonb, $4, $5) AS is_done",
        ];
        let texts = texts.map(str::to_owned).into();
        Ok(Self(Mutex::new(PreparedConnection::open_installed(url, None, texts).await?)))
    }

    pub(super) async fn list(
        &self,
        filter: StepsFilter<'_>,
        after: Option<&StoredSteps>,
    ) -> Result<Vec<StoredSteps>, StepsError> {
        let StepsFilter { state, name, key, id } = filter;
        let state = state.map(StepsState::name);
        let Ok(id) = id.map(Uuid::try_parse).transpose() else { return Ok(Vec::new()) };
        let after_us = after.map(|last| last.since_us);
        let after_id = after.and_then(|last| Uuid::try_parse(&last.id).ok());
        let with_completed = filter.with_completed();
        let params: [&(dyn ToSql + Sync); 8] =
            [&state, &name, &key, &id, &with_completed, &after_us, &after_id, &PAGE_ROWS_MAX];
        let rows = self.query(LIST, &params).await?;
        rows.iter().map(|row| stored(row).map_err(StepsError::Database)).collect()
    }

    pub(super) async fn points(&self, id: &str) -> Result<Vec<StoredPoint>, StepsError> {
        let id = Uuid::try_parse(id).map_err(|error| StepsError::Database(error.into()))?;
        let rows = self.query(POINTS, &[&id]).await?;
        rows.iter().map(|row| point(row).map_err(StepsError::Database)).collect()
    }

    pub(super) async fn retry(
        &self,
        id: &str,
        again: CallAgain,
        note: &str,
    ) -> Result<bool, StepsError> {
        let Ok(id) = Uuid::try_parse(id) else { return Ok(false) };
        let (revision, is_forced) = again.parts();
        self.is_done(RETRY, &[&id, &revision, &is_forced, &note]).await
    }

    pub(super) async fn settle(
        &self,
        id: &str,
        reply: &Reply,
        note: &str,
    ) -> Result<bool, StepsError> {
        let Ok(id) = Uuid::try_parse(id) else { return Ok(false) };
        let (status, headers) = (i32::from(reply.status.as_u16()), reply.headers_json());
        self.is_done(SETTLE, &[&id, &status, &headers, &&reply.body[..], &note]).await
    }

    async fn is_done(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<bool, StepsError> {
        let rows = self.query(statement, params).await?;
        let is_done = rows.first().map(|row| row.try_get("is_done")).transpose();
        Ok(is_done.map_err(|error| StepsError::Database(error.into()))?.unwrap_or(false))
    }

    async fn query(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StepsError> {
        self.0.lock().await.query(statement, params).await.map_err(StepsError::Database)
    }
}

fn stored(row: &Row) -> Result<StoredSteps, BoxError> {
    let ms = |name| -> Result<_, tokio_postgres::Error> {
        let ms: Option<f64> = row.try_get(name)?;
        Ok(ms.map(|ms| StoreTime::from_ms(ms.floor() as i64)))
    };
    let (status, headers): (Option<i32>, Option<&str>) =
        (row.try_get("status")?, row.try_get("headers")?);
    let answer = status.map(|status| (status, headers.unwrap_or_default()));
    let (state, unreadable) = judged(row.try_get("state")?, answer);
    let since_us = row.try_get::<_, f64>("since_us")? as i64;
    Ok(StoredSteps {
        id: row.try_get::<_, Uuid>("id")?.to_string(),
        name: row.try_get("name")?,
        key: row.try_get("key")?,
        state,
        since: StoreTime::from_ms(since_us.div_euclid(US_PER_MS)),
        since_us,
        begun_at: ms("begun_ms")?.ok_or("it has no beginning")?,
        due_at: ms("due_ms")?,
        attempts: row.try_get::<_, i32>("attempts")?.unsigned_abs(),
        point: row.try_get("point")?,
        calling: row.try_get("calling")?,
        is_repeatable: row.try_get("repeatable")?,
        revision: row.try_get("revision")?,
        quiet_until: ms("quiet_ms")?,
        error: row.try_get("error")?,
        note: row.try_get("note")?,
        status: status.and_then(|status| u16::try_from(status).ok()),
        request: row.try_get("request")?,
        unreadable,
    })
}

fn point(row: &Row) -> Result<StoredPoint, BoxError> {
    Ok(StoredPoint {
        name: row.try_get("name")?,
        value: row.try_get("value")?,
        committed_at: StoreTime::from_ms(row.try_get("committed_ms")?),
    })
}

const US_PER_MS: i64 = 1_000;
/// The numbers of the statements.
const LIST: usize = 0;
const POINTS: usize = 1;
const RETRY: usize = 2;
const SETTLE: usize = 3;
