//! The audit trail of a store in memory: one chain.

use std::sync::Arc;
use std::time::Duration;

use super::MemoryStore;
use crate::clock::StoreTime;
use crate::event::EventKind;
use crate::record::Token;
use crate::scope::OperationId;
use crate::store::audit::{
    Appended, Audit, Calling, Chain, ChainRow, Entry, EntryCursor, EntryPage, EntryQuery, Head,
    Link, Note, Trail, WriterId,
};
use crate::store::{Draft, Guard, Next, Seen, Swap};

pub(super) struct MemoryTrail {
    chain: Chain,
    entries: Vec<Entry>,
}

impl Default for MemoryTrail {
    fn default() -> Self {
        let writer = WriterId::new(*Token::random().as_bytes(), 0);
        Self { chain: Chain::new(writer), entries: Vec::new() }
    }
}

impl MemoryTrail {
    pub(super) fn add(&mut self, at: StoreTime, note: Option<&Note>) {
        if let Some(note) = note {
            self.entries.push(self.chain.add(at, note.clone()));
        }
    }

    fn append(&mut self, batch: &Appended) {
        if self.chain.appended != batch.batch {
            self.chain.appended = batch.batch;
            batch.notes.iter().for_each(|(at, note)| self.add(*at, Some(note)));
        }
    }

    fn prune(&mut self, until: StoreTime, limit: usize) -> bool {
        let old = self.entries.iter().take_while(|entry| entry.at < until).take(limit).count();
        if let Some(Entry { sequence, hash, .. }) = self.entries.drain(..old).next_back() {
            self.chain.head.from = Link { sequence, hash };
        }
        old == limit
    }

    fn find(&self, query: &EntryQuery) -> EntryPage {
        let of_key = |entry: &&Entry| query.key.is_some() && entry.note.about.key == query.key;
        let ids: Vec<_> =
            self.entries.iter().filter(of_key).filter_map(|entry| entry.note.id).collect();
        let matches = |entry: &&Entry| {
            (query.id.is_none() || entry.note.id == query.id)
                && (query.key.is_none() || entry.note.id.is_some_and(|id| ids.contains(&id)))
                && query.since.is_none_or(|since| entry.at >= since)
                && query.until.is_none_or(|until| entry.at < until)
                && query.after.is_none_or(|after| EntryCursor::of(entry) > after)
        };
        let row = |entry: &Entry| (EntryCursor::of(entry), Some(entry.clone()));
        let mut found: Vec<_> = self.entries.iter().filter(matches).map(row).collect();
        found.sort_by_key(|(place, _)| *place);
        found.truncate(query.page());
        EntryPage::of(found, query)
    }
}

impl Audit for MemoryStore {
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen> {
        Box::pin(async move { Ok(self.claim_noted(&draft, Some(&note))) })
    }

    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap> {
        Box::pin(async move { Ok(self.swap_noted(id, &guard, &to, Some(&note))) })
    }

    fn append(&self, batch: Arc<Appended>) -> Calling<'_, ()> {
        Box::pin(async move {
            self.lock().0.trail.append(&batch);
            Ok(())
        })
    }

    fn prune(&self, until: StoreTime, limit: usize) -> Calling<'_, bool> {
        Box::pin(async move { Ok(self.lock().0.trail.prune(until, limit)) })
    }

    fn keep(&self) -> Duration {
        self.audit.map_or(Duration::ZERO, |options| options.keep)
    }

    fn trail(&self) -> &dyn Trail {
        self
    }
}

impl Trail for MemoryStore {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        Box::pin(async move { Ok(self.lock().0.trail.find(&query)) })
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        Box::pin(async move {
            let (inner, _) = self.lock();
            let entries = inner.trail.entries.iter();
            let counted =
                entries.filter(|entry| entry.note.id == Some(id) && entry.note.kind == kind);
            Ok(counted.count() as u64)
        })
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        Box::pin(async move { Ok(vec![self.lock().0.trail.chain.head]) })
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        Box::pin(async move {
            let (inner, _) = self.lock();
            let entries = inner.trail.entries.iter();
            let rows = entries.filter(|entry| entry.writer == writer && entry.sequence > after);
            Ok(rows.take(limit).map(|entry| ChainRow::Entry(Box::new(entry.clone()))).collect())
        })
    }
}
