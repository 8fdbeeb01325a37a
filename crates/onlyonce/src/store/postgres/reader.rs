//! The reader: whatever loads have queued are one statement.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Row;

use super::inbox::Inbox;
use super::job::Load;
use super::link::Line;
use super::params::Loads;
use super::round::MOVED;
use super::row::{Said, said};
use super::shared::Shared;
use super::trouble::{Cause, Trouble};
use crate::record::Record;
use crate::scope::OperationId;
use crate::store::time::Told;
use crate::store::{BoxError, Fault, Seen, StoreError};

/// Works until its queue is closed and empty.
pub(super) struct Reader {
    pub(super) line: Line,
    pub(super) loads: Inbox<Load>,
    pub(super) shared: Arc<Shared>,
}

impl Reader {
    pub(super) async fn run(mut self) {
        while let Some(load) = self.loads.recv().await {
            let mut batch = vec![load];
            while batch.len() < BATCH_MAX
                && let Some(load) = self.loads.try_recv()
            {
                batch.push(load);
            }
            self.answer(batch).await;
        }
    }

    async fn answer(&mut self, loads: Vec<Load>) {
        let answer = match self.ask(&loads).await {
            // A connection that had died unnoticed: a read may be repeated.
            Err(Trouble::Unsure(_)) => self.ask(&loads).await,
            answer => answer,
        };
        match answer {
            Ok(mut answer) => {
                for load in loads {
                    // A caller who no longer listens has dropped the call.
                    let _ = load.reply.send(answer.seen(load.id));
                }
            }
            Err(trouble) => {
                for load in loads {
                    let _ = load.reply.send(Err(trouble.fault_of_read()));
                }
            }
        }
    }

    async fn ask(&mut self, loads: &[Load]) -> Result<Answer, Trouble> {
        let asked_at = self.shared.time.boot();
        let mut ids: Vec<OperationId> = loads.iter().map(|load| load.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let params = Loads::new(self.shared.time.known(), ids.into_iter());
        let rows = self.line.query(LOAD, &params.params()).await?;
        let mut answer = Answer::read(&rows).map_err(|why| Trouble::NotDone(Cause::new(why)))?;
        answer.told = self.shared.time.tell(answer.told, asked_at);
        Ok(answer)
    }
}

/// What a load found.
struct Answer {
    told: Told,
    there: HashMap<OperationId, Result<Record, Arc<StoreError>>>,
}

impl Answer {
    fn read(rows: &[Row]) -> Result<Self, BoxError> {
        let (mut told, mut there) = (None, HashMap::new());
        for row in rows {
            match said(row)? {
                Said::Time(time) => told = Some(time),
                Said::There(id, record) => drop(there.insert(id, record.map_err(Arc::new))),
                Said::Wrote(_) => {}
            }
        }
        Ok(Self { told: told.ok_or(MOVED)?, there })
    }

    fn seen(&mut self, id: OperationId) -> Result<Seen, Fault> {
        let record = match self.there.get(&id) {
            Some(Err(error)) => {
                return Err(Fault::NotDone(StoreError::Unreadable(error.clone().into())));
            }
            Some(Ok(record)) => Some(record.clone()),
            None => None,
        };
        Ok(Seen { record, mine: false, now: self.told.now })
    }
}

/// The one statement of this line.
const LOAD: usize = 0;
/// Loads in one statement: their bodies are in memory at once.
const BATCH_MAX: usize = 256;
