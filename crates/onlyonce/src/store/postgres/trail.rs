//! The audit trail of a store: the writers of all nodes, each with a chain.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::PostgresStore;
use super::audit_rows::{chain_end, chain_row, entry, find, place};
use super::columns::{Param, given};
use super::connection::{Connection, bounded};
use super::maintenance::Maintenance;
use super::sql_error::{SqlError, unclear};
use super::statement::Statement;
use super::value::Moment;
use crate::clock::StoreTime;
use crate::event::EventKind;
use crate::scope::OperationId;
use crate::store::audit::{
    Appended, Audit, Calling, ChainRow, EntryPage, EntryQuery, Head, Note, Trail, WriterId,
};
use crate::store::{BoxError, Draft, Guard, Next, Seen, Swap};

impl Audit for PostgresStore {
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen> {
        Box::pin(self.claim_noted(draft, Some(note)))
    }

    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap> {
        Box::pin(self.swap_noted(id, guard, to, Some(note)))
    }

    fn append(&self, batch: Arc<Appended>) -> Calling<'_, ()> {
        Box::pin(self.maintain(SqlError::fault, |maintenance| Box::pin(maintenance.append(batch))))
    }

    fn prune(&self, until: StoreTime, limit: usize) -> Calling<'_, bool> {
        let maintenance = self.workers.maintenance.clone();
        let pruning = async move { prune(&maintenance, until, limit).await };
        Box::pin(self.run(&self.workers.room, SqlError::fault, pruning))
    }

    fn keep(&self) -> Duration {
        self.audit.map_or(Duration::ZERO, |options| options.keep)
    }

    fn trail(&self) -> &dyn Trail {
        self
    }
}

impl Trail for PostgresStore {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        self.read(move |maintenance| Box::pin(maintenance.entries(query)))
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        self.read(move |maintenance| Box::pin(maintenance.count_entries(id, kind)))
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        self.read(|maintenance| Box::pin(maintenance.heads()))
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        self.read(move |maintenance| Box::pin(maintenance.chain_rows(writer, after, limit)))
    }
}

impl PostgresStore {
    fn read<T: Send + 'static>(
        &self,
        call: impl for<'a> FnOnce(&'a mut Maintenance) -> BoxFuture<'a, Result<T, SqlError>>
        + Send
        + 'static,
    ) -> Calling<'_, T> {
        Box::pin(self.maintain(SqlError::fault_of_read, call))
    }
}

/// One chain after the other. Other calls get the connection in between.
async fn prune(
    maintenance: &Mutex<Maintenance>,
    until: StoreTime,
    limit: usize,
) -> Result<bool, SqlError> {
    let (limit, mut more) = (i64::try_from(limit).unwrap_or(i64::MAX), false);
    let end = Instant::now() + PRUNE_WAIT_MAX;
    // Not in the head of the loop, which would hold the lock to its end.
    let writers = maintenance.lock().await.old_chains(until).await?;
    for writer in writers {
        if Instant::now() >= end {
            return Ok(true);
        }
        more |= maintenance.lock().await.prune_chain(&writer, until, limit).await?;
    }
    Ok(more)
}

impl Maintenance {
    /// A batch that is in the chain already is not added again.
    async fn append(&mut self, batch: Arc<Appended>) -> Result<(), SqlError> {
        let nothing = async |_: &Connection| Ok(());
        self.transaction("BEGIN", nothing, |(), chain| {
            if chain.appended == batch.batch {
                return Vec::new();
            }
            chain.appended = batch.batch;
            batch.notes.clone()
        })
        .await
    }

    /// The writers of chains that have entries from before `until`.
    async fn old_chains(&mut self, until: StoreTime) -> Result<Vec<Vec<u8>>, SqlError> {
        let until: [Param<'_>; 1] = [Box::new(Moment(until))];
        let rows = self.connection.query(Statement::OldChains, &until).await?;
        rows.iter().map(|row| row.try_get("writer").map_err(unclear)).collect()
    }

    /// Whether the chain may have more entries from before `until`.
    async fn prune_chain(
        &mut self,
        writer: &[u8],
        until: StoreTime,
        limit: i64,
    ) -> Result<bool, SqlError> {
        let params: [Param<'_>; 3] = [Box::new(writer), Box::new(Moment(until)), Box::new(limit)];
        let rows = self.connection.query(Statement::Prune, &params).await?;
        let pruned: i64 = match rows.first() {
            Some(row) => row.try_get("pruned").map_err(unclear)?,
            None => 0,
        };
        Ok(pruned == limit)
    }

    /// An entry that does not read is left out: `verify` tells of it.
    async fn entries(&mut self, query: EntryQuery) -> Result<EntryPage, SqlError> {
        let (sql, params) = find(&self.schema, &query);
        let connection = self.connection.ready().await?;
        let rows = bounded(async { Ok(connection.query(&sql, given(&params)).await?) }).await;
        let rows = self.connection.judge(rows)?;
        let rows = rows.iter().map(|row| Ok((place(row)?, entry(row).ok())));
        Ok(EntryPage::of(rows.collect::<Result<_, BoxError>>().map_err(unclear)?, &query))
    }

    async fn count_entries(&mut self, id: OperationId, kind: EventKind) -> Result<u64, SqlError> {
        let id = uuid::Uuid::from_bytes(*id.as_bytes());
        let params: [Param<'_>; 2] = [Box::new(id), Box::new(kind.name())];
        let rows = self.connection.query(Statement::CountEntries, &params).await?;
        let row = rows.first().ok_or_else(|| unclear("a count has no row"))?;
        row.try_get::<_, i64>("counted").map(i64::cast_unsigned).map_err(unclear)
    }

    async fn heads(&mut self) -> Result<Vec<Head>, SqlError> {
        let rows = self.connection.query(Statement::ChainEnds, &[]).await?;
        rows.iter().map(|row| chain_end(row).map(|end| end.head).map_err(unclear)).collect()
    }

    async fn chain_rows(
        &mut self,
        writer: WriterId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ChainRow>, SqlError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params: [Param<'_>; 3] =
            [Box::new(bytes(writer)), Box::new(after.cast_signed()), Box::new(limit)];
        let rows = self.connection.query(Statement::ChainRows, &params).await?;
        rows.iter().map(|row| chain_row(row).map_err(unclear)).collect()
    }
}

fn bytes(writer: WriterId) -> Vec<u8> {
    writer.to_bytes().to_vec()
}

/// How long one call may prune: its caller waits.
const PRUNE_WAIT_MAX: Duration = Duration::from_secs(3);
