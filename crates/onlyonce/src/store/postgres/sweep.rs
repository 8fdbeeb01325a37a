//! Deleting what has expired, in small pieces, and telling the audit trail.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;
use uuid::Uuid;

use super::columns::Param;
use super::connection::Connection;
use super::maintenance::{DURABLY, Maintenance, START};
use super::sql_error::{SqlError, unclear};
use super::statement::Statement;
use super::value::Moment;
use crate::clock::StoreTime;
use crate::scope::{OperationId, Principal};
use crate::store::audit::{About, Note};
use crate::store::{BoxError, Swept};

/// Deletes expired records in small pieces, each followed by a pause in proportion. Other calls get the connection
/// between two pieces.
pub(super) async fn sweep(
    maintenance: &Mutex<Maintenance>,
    until: StoreTime,
    limit: usize,
) -> Result<Swept, SqlError> {
    let end = Instant::now() + SWEEP_WAIT_MAX;
    let mut deleted = 0;
    while deleted < limit {
        let begun = Instant::now();
        let piece = (limit - deleted).min(SWEEP_ROWS);
        let mut locked = maintenance.lock().await;
        let gone = locked.sweep_piece(until, piece).await?;
        deleted += gone;
        if gone < piece {
            // The next sweep looks at the rows that were locked, too.
            locked.swept_until = START;
            return Ok(Swept { deleted, more: false });
        }
        drop(locked);
        if Instant::now() >= end {
            return Ok(Swept { deleted, more: true });
        }
        sleep(begun.elapsed() * SWEEP_REST).await;
    }
    let more = maintenance.lock().await.has_expired(until).await?;
    Ok(Swept { deleted, more })
}

impl Maintenance {
    /// How many were deleted.
    async fn sweep_piece(&mut self, until: StoreTime, rows: usize) -> Result<usize, SqlError> {
        let params: [Param<'_>; 3] = [
            Box::new(Moment(until)),
            Box::new(Moment(self.swept_until)),
            Box::new(i64::try_from(rows).unwrap_or(0)),
        ];
        let sweep = async |connection: &Connection| {
            let rows = connection.query(Statement::Sweep, &params).await?;
            Gone::read(&rows).map_err(unclear)?.ok_or(SqlError::Moved)
        };
        let gone = self.noted(DURABLY, sweep, |gone, _| gone.notes()).await?;
        if let Some(reached) = gone.records.iter().map(|record| record.expired_at).max() {
            self.swept_until = reached;
        }
        Ok(gone.records.len())
    }

    async fn has_expired(&mut self, until: StoreTime) -> Result<bool, SqlError> {
        let params: [Param<'_>; 2] = [Box::new(Moment(until)), Box::new(Moment(self.swept_until))];
        let rows = self.connection.query(Statement::HasExpired, &params).await?;
        let row = rows.first().ok_or(SqlError::Moved)?;
        row.try_get("has_expired").map_err(unclear)
    }
}

/// What a piece of a sweep has deleted.
struct Gone {
    now: StoreTime,
    records: Vec<GoneRecord>,
}

struct GoneRecord {
    id: OperationId,
    expired_at: StoreTime,
    about: About,
}

impl Gone {
    /// `None` if there is no row: the records were moved elsewhere.
    fn read(rows: &[Row]) -> Result<Option<Self>, BoxError> {
        let Some(first) = rows.first() else { return Ok(None) };
        let Moment(now) = first.try_get("now")?;
        let records = rows.iter().filter_map(|row| GoneRecord::read(row).transpose());
        Ok(Some(Self { now, records: records.collect::<Result<_, _>>()? }))
    }

    fn notes(&self) -> Vec<(StoreTime, Note)> {
        let note = |record: &GoneRecord| Note::expired_by(record.id, record.about.clone());
        self.records.iter().map(|record| (self.now, note(record))).collect()
    }
}

impl GoneRecord {
    /// `None` in the row that only tells the time.
    fn read(row: &Row) -> Result<Option<Self>, BoxError> {
        let Some(id) = row.try_get::<_, Option<Uuid>>("id")? else { return Ok(None) };
        let Moment(expired_at) = row.try_get("expires_at")?;
        let about = About {
            route: row.try_get::<_, &str>("route")?.into(),
            principal: Some(Principal::from_bytes(
                row.try_get::<_, &[u8]>("principal")?.try_into()?,
            )),
            attempt: Some(row.try_get::<_, i32>("attempt")?.cast_unsigned()),
            ..About::default()
        };
        Ok(Some(Self { id: OperationId::from_bytes(id.into_bytes()), expired_at, about }))
    }
}

/// Rows of one piece of a sweep: claims wait for no more than these.
const SWEEP_ROWS: usize = 30;
/// A sweep rests this many times as long as its last piece took.
const SWEEP_REST: u32 = 4;
/// How long one sweep may take: its caller waits.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(3);
