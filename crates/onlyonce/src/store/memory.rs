//! A store that forgets when the process ends, for tests.

mod trail;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::trail::MemoryTrail;
use super::audit::{Audit, AuditOptions, Note};
use super::cas::{self, Effect};
use super::wake::Wakers;
use super::{
    Beat, Cursor, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen, Store,
    StoreIdentity, StoreLimits, Swap, Swept, Watch,
};
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::planted::{Planted, planted};
use crate::record::{Record, Token};
use crate::scope::{IdPrefix, OperationId};

/// Records in a map. A clone is the same store.
///
/// ```
/// use onlyonce::store::memory::MemoryStore;
///
/// let store = MemoryStore::new();
/// # let _ = store;
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
    clock: Arc<dyn Clock>,
    wakers: Wakers,
    audit: Option<AuditOptions>,
    identity: StoreIdentity,
}

#[derive(Default)]
struct Inner {
    records: BTreeMap<OperationId, Record>,
    /// The highest time seen: time does not run backward here.
    now: Option<StoreTime>,
    check_values: BTreeMap<String, String>,
    trail: MemoryTrail,
}

impl MemoryStore {
    /// An empty store on the system's clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// An empty store on `clock`.
    pub fn with_clock(clock: impl Clock) -> Self {
        let (inner, wakers) = (Arc::default(), Wakers::default());
        Self {
            inner,
            clock: Arc::new(clock),
            wakers,
            audit: None,
            identity: StoreIdentity::random(),
        }
    }

    /// Keeps an audit trail, in memory. Default: none.
    #[must_use]
    pub fn with_audit(mut self, options: AuditOptions) -> Self {
        self.audit = Some(options);
        self
    }

    /// Says that it is this store: for tests of what stands in front of a store, with two that share an identity. Default: a new
    /// one.
    #[must_use]
    pub fn with_identity(mut self, identity: StoreIdentity) -> Self {
        self.identity = identity;
        self
    }

    fn lock(&self) -> (MutexGuard<'_, Inner>, StoreTime) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let wall = self.clock.wall();
        let now = inner.now.map_or(wall, |seen| seen.max(wall));
        inner.now = Some(now);
        (inner, now)
    }

    fn claim_noted(&self, draft: &Draft, note: Option<&Note>) -> Seen {
        let (mut inner, now) = self.lock();
        let inserted = cas::claim(inner.records.get(&draft.id), draft, now);
        if let Some(record) = inserted {
            inner.records.insert(draft.id, record);
            inner.trail.add(now, note);
            self.wakers.wake(draft.id);
        }
        let mine = cas::is_mine(inner.records.get(&draft.id), draft);
        inner.seen(draft.id, mine, now)
    }

    fn swap_noted(&self, id: OperationId, guard: &Guard, to: &Next, note: Option<&Note>) -> Swap {
        let (mut inner, now) = self.lock();
        let revision = match cas::swap(inner.records.get(&id), guard, to, now) {
            Effect::Stale => return Swap::Stale(Box::new(inner.seen(id, false, now))),
            Effect::Already(revision) => revision,
            Effect::Delete(revision) => {
                inner.records.remove(&id);
                inner.trail.add(now, note);
                revision
            }
            Effect::Write(record) => {
                let revision = record.revision();
                inner.records.insert(id, *record);
                inner.trail.add(now, note);
                revision
            }
        };
        self.wakers.wake(id);
        Swap::Done(revision)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Inner {
    fn seen(&self, id: OperationId, mine: bool, now: StoreTime) -> Seen {
        let record = self.records.get(&id).cloned();
        Seen { record, mine, now }
    }
}

impl Store for MemoryStore {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        Ok(self.claim_noted(&draft, None))
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        let (inner, now) = self.lock();
        Ok(inner.seen(id, false, now))
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        Ok(self.swap_noted(id, &guard, &to, None))
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        let (mut inner, now) = self.lock();
        let beats = held.iter().map(|(id, token)| {
            match cas::renew(inner.records.get(id), *token, lease, now) {
                None => Beat::Lost,
                Some(record) => {
                    inner.records.insert(*id, record);
                    Beat::Kept
                }
            }
        });
        Ok(beats.collect())
    }
}

impl Watch for MemoryStore {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.wakers.changed(id)
    }
}

impl Maintain for MemoryStore {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let (inner, now) = self.lock();
        let after = query.after.map_or(Bound::Unbounded, |cursor| {
            Bound::Excluded(OperationId::from_bytes(cursor.0.to_be_bytes()))
        });
        let matching = inner
            .records
            .range((after, Bound::Unbounded))
            .filter(|(_, record)| query.states.contains(record.state.kind()));
        let records: Vec<_> = matching.take(query.limit).map(|(id, r)| (*id, r.clone())).collect();
        let last = records.last().filter(|_| records.len() == query.limit);
        let next = last.map(|(id, _)| Cursor(u128::from_be_bytes(*id.as_bytes())));
        Ok(Page { next, records, now })
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        let (mut inner, now) = self.lock();
        let expired = inner.records.iter().filter(|(_, record)| {
            record.is_expired(until)
                || planted(Planted::SweepIgnoresState) && record.expires_at().is_none()
        });
        let mut ids: Vec<_> = expired.map(|(id, _)| *id).take(limit.saturating_add(1)).collect();
        let more = ids.len() > limit;
        ids.truncate(limit);
        for id in &ids {
            if let Some(record) = inner.records.remove(id)
                && self.audit.is_some()
            {
                inner.trail.add(now, Some(&Note::expired(*id, &record)));
            }
        }
        Ok(Swept { deleted: ids.len(), more })
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let (mut inner, _) = self.lock();
        let kept = inner.check_values.get(name).map(String::as_str);
        match to {
            Some(to) if kept == from => {
                inner.check_values.insert(name.to_owned(), to.to_owned());
                Ok(Some(to.to_owned()))
            }
            _ => Ok(kept.map(str::to_owned)),
        }
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { body_bytes_max: usize::MAX, embedded: true, expires_by_itself: false }
    }

    fn identity(&self) -> Option<StoreIdentity> {
        Some(self.identity)
    }
}

impl Inspect for MemoryStore {
    fn audit(&self) -> Option<&dyn Audit> {
        self.audit.is_some().then_some(self as &dyn Audit)
    }

    async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        let (inner, _) = self.lock();
        let found = inner.records.range(prefix.first_id()..);
        let found = found.take_while(|(id, _)| id.prefix() == prefix).take(limit);
        Ok(found.map(|(id, record)| (*id, record.clone())).collect())
    }
}
