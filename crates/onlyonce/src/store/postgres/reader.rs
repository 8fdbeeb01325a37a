//! The reader: loads that queue during one statement are the next statement.

use std::collections::HashMap;
use std::sync::Arc;

use super::answer::{Answer, Found};
use super::call::LoadCall;
use super::columns::Row;
use super::connection::Reconnecting;
use super::queue::Queue;
use super::sql_error::SqlError;
use super::statement::{Statement, Write};
use crate::clock::StoreTime;
use crate::record::Record;
use crate::scope::OperationId;
use crate::store::{Fault, Seen, StoreError};

/// Works until its queue is closed and empty.
pub(super) struct Reader {
    pub(super) connection: Reconnecting,
    pub(super) loads: Queue<LoadCall>,
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

    async fn answer(&mut self, mut loads: Vec<LoadCall>) {
        loads.sort_by_key(|load| load.id);
        let answer = match self.load(&loads).await {
            // The connection had broken unnoticed: a read may be repeated.
            Err(SqlError::Unsure(_)) => self.load(&loads).await,
            answer => answer,
        };
        let shared = answer.map(|answer| (answer.now, read(answer)));
        for load in loads {
            let seen = match &shared {
                Ok((now, records)) => seen(records.get(&load.id), *now),
                Err(error) => Err(error.fault_of_read()),
            };
            // A caller who no longer listens has dropped the call.
            let _ = load.reply.send(seen);
        }
    }

    async fn load(&mut self, loads: &[LoadCall]) -> Result<Answer, SqlError> {
        let mut ids: Vec<OperationId> = loads.iter().map(|load| load.id).collect();
        ids.dedup();
        let writes = ids.into_iter().map(|id| Write { row: Row::of_id(id), ..Write::default() });
        let params = Statement::Load.params(writes.collect());
        Answer::read(&self.connection.query(Statement::Load, &params).await?)
    }
}

/// A record, or why it does not read; several callers may have asked for it.
type Shared = Result<Record, Arc<StoreError>>;

fn read(answer: Answer) -> HashMap<OperationId, Shared> {
    let there = answer.found.into_iter().filter_map(|(id, found)| match found {
        Found::There(record) => Some((id, record.map_err(Arc::new))),
        Found::Written(_) => None,
    });
    there.collect()
}

fn seen(record: Option<&Shared>, now: StoreTime) -> Result<Seen, Fault> {
    match record.cloned().transpose() {
        Ok(record) => Ok(Seen { record, mine: false, now }),
        Err(error) => Err(Fault::NotDone(StoreError::Unreadable(error.into()))),
    }
}

/// Loads in one statement: their bodies are in memory at once.
const BATCH_MAX: usize = 256;
