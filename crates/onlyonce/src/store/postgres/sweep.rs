//! Deleting what has expired, in small pieces, and telling the audit trail.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;
use uuid::Uuid;

use super::audit_rows::expired;
use super::columns::Param;
use super::connection::Connection;
use super::maintenance::{Maintenance, START};
use super::sql_error::{SqlError, unclear};
use super::statement::Statement;
use super::value::Moment;
use crate::clock::StoreTime;
use crate::store::Swept;
use crate::store::audit::Note;

/// Deletes expired records in small pieces, each followed by a pause in proportion. Other calls get the connection
/// between two pieces.
pub(super) async fn sweep(
    maintenance: &Mutex<Maintenance>,
    until: StoreTime,
    limit: usize,
) -> Result<Swept, SqlError> {
    let (end, mut deleted) = (Instant::now() + SWEEP_WAIT_MAX, 0);
    loop {
        let begun = Instant::now();
        let rows = (limit - deleted).min(SWEEP_ROWS);
        let piece = maintenance.lock().await.sweep_piece(until, rows).await?;
        deleted += piece.expired.len();
        if !piece.more || deleted >= limit || Instant::now() >= end {
            return Ok(Swept { deleted, more: piece.more });
        }
        sleep(begun.elapsed() * SWEEP_REST).await;
    }
}

impl Maintenance {
    async fn sweep_piece(&mut self, until: StoreTime, rows: usize) -> Result<Piece, SqlError> {
        let params: [Param<'_>; 3] = [
            Box::new(Moment(until)),
            Box::new(Moment(self.swept_until)),
            Box::new(i64::try_from(rows).unwrap_or(0)),
        ];
        let sweep = async |connection: &Connection| {
            Piece::read(&connection.run(Statement::Sweep, &params).await?)
        };
        // A deletion that a crash of the server undoes is made again by the next sweep, so it does not wait for the disk.
        // Entries of the audit trail do.
        let begin = if self.chain.is_some() { "BEGIN" } else { BEGIN_WITHOUT_FLUSH };
        let piece = self.transaction(begin, sweep, |piece, _| piece.expired.clone()).await?;
        self.swept_until = match piece.reached {
            Some(reached) if piece.more => reached,
            // The next sweep looks at the rows that were locked, too.
            _ => START,
        };
        Ok(piece)
    }
}

/// What a piece of a sweep has deleted.
struct Piece {
    expired: Vec<(StoreTime, Note)>,
    more: bool,
    /// When the last of them expired.
    reached: Option<StoreTime>,
}

impl Piece {
    fn read(rows: &[Row]) -> Result<Self, SqlError> {
        let first = rows.first().ok_or(SqlError::Moved)?;
        let Moment(now) = first.try_get("now")?;
        let mut piece = Self { expired: Vec::new(), more: first.try_get("more")?, reached: None };
        for row in rows {
            // A row without an id only tells the time.
            if let Some(id) = row.try_get::<_, Option<Uuid>>("id")? {
                let Moment(expired_at) = row.try_get("expires_at")?;
                piece.expired.push((now, expired(id, row).map_err(unclear)?));
                piece.reached = piece.reached.max(Some(expired_at));
            }
        }
        Ok(piece)
    }
}

const BEGIN_WITHOUT_FLUSH: &str = "BEGIN; SET LOCAL synchronous_commit = off";
/// Rows of one piece of a sweep: claims wait for no more than these.
const SWEEP_ROWS: usize = 30;
/// A sweep rests this many times as long as its last piece took.
const SWEEP_REST: u32 = 4;
/// How long one sweep may take: its caller waits.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(3);
