//! The statements of operators in Postgres.

use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{CallAgain, PAGE_ROWS_MAX, StepsFilter, StoredPoint, StoredSteps};
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
    let state =
        StepsState::of(row.try_get("state")?).ok_or("a state that this version does not know")?;
    let since_us: i64 = row.try_get("since_us")?;
    Ok(StoredSteps {
        id: row.try_get::<_, Uuid>("id")?.to_string(),
        name: row.try_get("name")?,
        key: row.try_get("key")?,
        state,
        since: StoreTime::from_ms(since_us.div_euclid(US_PER_MS)),
        since_us,
        begun_at: StoreTime::from_ms(row.try_get("begun_ms")?),
        due_at: row.try_get::<_, Option<i64>>("due_ms")?.map(StoreTime::from_ms),
        attempts: row.try_get::<_, i32>("attempts")?.unsigned_abs(),
        point: row.try_get("point")?,
        calling: row.try_get("calling")?,
        is_repeatable: row.try_get("repeatable")?,
        revision: row.try_get("revision")?,
        quiet_until: row.try_get::<_, Option<i64>>("quiet_ms")?.map(StoreTime::from_ms),
        error: row.try_get("error")?,
        note: row.try_get("note")?,
        status: row.try_get::<_, Option<i32>>("status")?.map(u16::try_from).transpose()?,
        request: row.try_get("request")?,
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
