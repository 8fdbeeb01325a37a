//! A store that is right but for one defect.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use onlyonce::clock::{Clock, StoreTime};
use onlyonce::record::{Record, State, Token};
use onlyonce::scope::{IdPrefix, OperationId};
use onlyonce::store::cas;
use onlyonce::store::conformance::{Factory, Fresh, ManualClock};
use onlyonce::store::{
    Beat, Census, Cursor, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen,
    Store, StoreError, StoreLimits, Swap, Swept, Watch,
};
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::defect::Defect;

/// Makes stores with the defect; `None` for none. What is on the disk outlives a crash.
pub(super) struct WrongStores(pub(super) Option<Defect>);

impl Factory for WrongStores {
    type Store = Wrong;

    async fn fresh(&self) -> Fresh<Wrong> {
        let clock = ManualClock::new();
        let store = Wrong {
            defect: self.0,
            disk: Arc::default(),
            clock: clock.clone(),
            watchers: Arc::default(),
        };
        Fresh::new(store).with_clock(clock)
    }

    async fn crash(&self, store: Wrong) -> Option<Wrong> {
        let mut disk = store.lock().0.clone();
        disk.absent.clear();
        match self.0 {
            Some(Defect::CrashLosesUnknown) => {
                disk.records.retain(|_, record| !matches!(record.state, State::Unknown { .. }))
            }
            Some(Defect::CrashLosesRunning) => {
                disk.records.retain(|_, record| !matches!(record.state, State::Running { .. }))
            }
            Some(Defect::CrashRevivesDeleted) => disk.records.extend(disk.deleted.clone()),
            Some(Defect::CrashForgetsCheckValues) => disk.check_values.clear(),
            _ => {}
        }
        Some(Wrong { disk: Arc::new(Mutex::new(disk)), ..store })
    }

    async fn damage(&self, store: Wrong, id: OperationId) -> Option<Wrong> {
        let id = store.place(id);
        let mut disk = store.lock().0.clone();
        disk.records.remove(&id);
        if self.0 != Some(Defect::DamagedIsAbsent) {
            disk.damaged.insert(id);
        }
        Some(Wrong { disk: Arc::new(Mutex::new(disk)), ..store })
    }
}

#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) defect: Option<Defect>,
    disk: Arc<Mutex<Disk>>,
    clock: ManualClock,
    watchers: Arc<Mutex<HashMap<OperationId, Arc<Notify>>>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) records: BTreeMap<OperationId, Record>,
    pub(super) deleted: BTreeMap<OperationId, Record>,
    damaged: HashSet<OperationId>,
    /// What a load once found absent.
    absent: HashSet<OperationId>,
    now: Option<StoreTime>,
    check_values: BTreeMap<String, String>,
}

impl Disk {
    fn readable(&self, id: OperationId) -> Result<(), Fault> {
        if self.damaged.contains(&id) {
            return Err(Fault::NotDone(StoreError::Unreadable("damaged".into())));
        }
        Ok(())
    }

    /// The record, or the one that was there.
    fn ever(&self, id: OperationId) -> Option<Record> {
        let there = self.records.get(&id).or_else(|| self.deleted.get(&id));
        there.cloned()
    }

    pub(super) fn delete(&mut self, id: OperationId) {
        self.deleted.extend(self.records.remove_entry(&id));
    }
}

impl Wrong {
    pub(super) fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(super) fn lock(&self) -> (MutexGuard<'_, Disk>, StoreTime) {
        let mut disk = self.disk.lock().expect("no writer panics");
        let wall = self.clock.wall();
        let highest = disk.now.filter(|_| !self.is(Defect::TimeRunsBackward));
        let now = highest.map_or(wall, |seen| seen.max(wall));
        disk.now = Some(now);
        (disk, now)
    }

    fn wake(&self, id: OperationId) {
        let watcher = self.watchers.lock().expect("no writer panics").get(&id).cloned();
        if let Some(watcher) = watcher {
            match self.defect {
                Some(Defect::WatchWakesOne) => watcher.notify_one(),
                _ => watcher.notify_waiters(),
            }
        }
    }

    fn seen(&self, disk: &Disk, id: OperationId, mine: bool, now: StoreTime) -> Seen {
        Seen { record: disk.records.get(&id).cloned(), mine, now }
    }
}

impl Store for Wrong {
    async fn claim(&self, mut draft: Draft) -> Result<Seen, Fault> {
        draft.id = self.place(draft.id);
        let checked = self.lock().0.records.get(&draft.id).cloned();
        match self.defect {
            Some(Defect::ClaimChecksThenInserts) => yield_now().await,
            Some(Defect::ClaimPanics) => panic!("it has a bad day"),
            Some(Defect::ClaimHangs) => std::future::pending().await,
            _ => {}
        }
        let (mut disk, now) = self.lock();
        disk.readable(draft.id)?;
        let found = match self.defect {
            Some(Defect::ClaimChecksThenInserts) => checked.as_ref(),
            _ => self.found(&disk, &draft, now),
        };
        let inserted = cas::claim(found, &self.obeyed(&draft), now);
        let is_new = inserted.is_some();
        if let Some(record) = inserted {
            disk.records.insert(draft.id, record);
        }
        let mine = cas::is_mine(disk.records.get(&draft.id), &draft);
        let mine = mine && (is_new || !self.is(Defect::ClaimRepeatedIsNotMine));
        let mine = mine || self.is(Defect::ClaimIsAlwaysMine);
        Ok(self.seen(&disk, draft.id, mine, now))
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        let id = self.place(id);
        let (mut disk, now) = self.lock();
        disk.readable(id)?;
        let mut seen = self.seen(&disk, id, false, now);
        if self.is(Defect::LoadHidesExpired) {
            seen.record = seen.record.filter(|record| !record.is_expired(now));
        }
        if self.is(Defect::LoadRemembersAbsent) && !disk.absent.insert(id) {
            seen.record = None;
        }
        if seen.record.is_some() {
            disk.absent.remove(&id);
        }
        Ok(seen)
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        let id = self.place(id);
        let read = self.lock().0.records.get(&id).cloned();
        if self.is(Defect::SwapChecksThenWrites) {
            yield_now().await;
        }
        let (mut disk, now) = self.lock();
        disk.readable(id)?;
        let current = match self.defect {
            Some(Defect::SwapChecksThenWrites) => read,
            Some(Defect::SwapMakesWhatIsAbsent) => disk.ever(id),
            _ => disk.records.get(&id).cloned(),
        };
        let guard = self.guard(guard, current.as_ref());
        let effect = cas::swap(current.as_ref(), &guard, &self.next(to.clone()), now);
        let done = self.write(&mut disk, id, &guard, effect);
        let is_deletion = to == Next::Absent;
        if done.is_some() && !(is_deletion && self.is(Defect::WatchMissesRelease)) {
            self.wake(id);
        }
        if done.is_none() && self.is(Defect::SwapWritesThoughStale) {
            self.overwrite(&mut disk, id, &to, now);
        }
        Ok(match done {
            Some(revision) => Swap::Done(revision),
            None => Swap::Stale(Box::new(self.seen(&disk, id, false, now))),
        })
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        let (mut disk, now) = self.lock();
        let mut held: Vec<_> = held.iter().map(|(id, token)| (self.place(*id), *token)).collect();
        if self.is(Defect::BeatsComeSorted) {
            held.sort_by_key(|(id, _)| *id);
        }
        let beat = |(id, token)| match self.renewed(disk.records.get(&id), token, lease, now) {
            None => Beat::Lost,
            Some(record) => {
                disk.records.insert(id, record);
                Beat::Kept
            }
        };
        Ok(held.into_iter().map(beat).collect())
    }
}

impl Watch for Wrong {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        let mut watchers = self.watchers.lock().expect("no writer panics");
        let watcher = watchers.entry(self.place(id)).or_default().clone();
        let is_late = self.is(Defect::WatchSubscribesWhenPolled);
        let subscribed = (!is_late).then(|| watcher.clone().notified_owned());
        async move {
            match subscribed {
                Some(subscribed) => subscribed.await,
                None => watcher.notified().await,
            }
        }
    }
}

impl Maintain for Wrong {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let (disk, now) = self.lock();
        let after = query.after.map(|cursor| cursor.0);
        let wanted = |id: u128, record: &Record| {
            after.is_none_or(|after| id > after) && query.states.contains(record.state.kind())
        };
        let number = |id: &OperationId| u128::from_be_bytes(*id.as_bytes());
        let mut rows = disk.records.iter().filter(|(id, r)| wanted(number(id), r));
        let records: Vec<_> =
            rows.by_ref().take(query.limit).map(|(id, r)| (*id, r.clone())).collect();
        let boundary = match self.defect {
            Some(Defect::ScanSkipsARow) => rows.next().map(|(id, _)| *id),
            _ => records.last().map(|(id, _)| *id),
        };
        let is_full = records.len() == query.limit;
        Ok(Page { next: boundary.filter(|_| is_full).map(|id| Cursor(number(&id))), records, now })
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        let expired = self.expired(until);
        if self.is(Defect::SweepChecksThenDeletes) {
            yield_now().await;
        }
        let expired = match self.defect {
            Some(Defect::SweepChecksThenDeletes) => expired,
            _ => self.expired(until),
        };
        let (mut disk, _) = self.lock();
        let limit = match self.defect {
            Some(Defect::SweepIgnoresItsLimit) => usize::MAX,
            _ => limit,
        };
        for id in expired.iter().take(limit) {
            disk.delete(*id);
        }
        Ok(Swept {
            deleted: expired.len().min(limit),
            more: expired.len() > limit && !self.is(Defect::SweepNeverSaysMore),
        })
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let read = self.lock().0.check_values.get(name).cloned();
        if self.is(Defect::CheckValueChecksThenWrites) {
            yield_now().await;
        }
        let (mut disk, _) = self.lock();
        let kept = match self.defect {
            Some(Defect::CheckValueChecksThenWrites) => read,
            _ => disk.check_values.get(name).cloned(),
        };
        let holds = match self.defect {
            Some(Defect::CheckValueIsReplaced) => from.is_none() || kept.as_deref() == from,
            Some(Defect::CheckValueNeedsNoGuard) => from.is_some() || kept.as_deref() == from,
            _ => kept.as_deref() == from,
        };
        match to {
            Some(to) if holds => {
                disk.check_values.insert(name.to_owned(), to.to_owned());
                Ok(Some(to.to_owned()))
            }
            _ => Ok(kept),
        }
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { body_bytes_max: usize::MAX, embedded: true, expires_by_itself: false }
    }
}

impl Inspect for Wrong {
    async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        let last = match self.defect {
            Some(Defect::PrefixSkipsTheLast) => 0xfe,
            _ => 0xff,
        };
        let (disk, _) = self.lock();
        let rows = disk.records.iter().filter(|(id, _)| {
            id.prefix() == prefix && id.as_bytes()[prefix.as_bytes().len()] <= last
        });
        Ok(rows.take(limit).map(|(id, record)| (*id, record.clone())).collect())
    }

    async fn census(&self) -> Result<Census, Fault> {
        let (disk, _) = self.lock();
        let mut census = Census::default();
        for record in disk.records.values() {
            census.count(record);
            let is_released = matches!(record.state, State::Released { .. });
            if is_released && self.is(Defect::CensusCountsReleased) {
                census.unknown += 1;
            }
        }
        Ok(census)
    }
}
