//! A store on the bench: the steps that the cases are made of, each checked.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::check::{Outcome, Stop, equal, failed};
use super::writes::{self, BRIEF, LEASE, Write};
use super::{Factory, Faulty, ManualClock};
use crate::clock::StoreTime;
use crate::record::{Record, StateKind, Token};
use crate::scope::OperationId;
use crate::store::{Beat, Draft, Fault, Lease, Maintain, Seen, Store, Swap, Swept};

/// A store, and the hands on its clock if it has any.
pub(super) struct Lab<S> {
    pub(super) store: Arc<S>,
    clock: Option<ManualClock>,
}

impl<S: Store> Lab<S> {
    pub(super) async fn fresh<F: Factory<Store = S>>(factory: &F) -> Self {
        let fresh = factory.fresh().await;
        Self::from_parts(fresh.store, fresh.clock)
    }

    /// The same store through a line that loses, doubles and delays.
    pub(super) fn faulty(&self) -> Lab<Faulty<S>> {
        Lab { store: Arc::new(Faulty::new(self.store.clone())), clock: self.clock.clone() }
    }

    /// The store after a crash; skips the case where the store is declared to forget.
    pub(super) async fn crash<F: Factory<Store = S>>(self, factory: &F) -> Result<Self, Stop> {
        let (store, clock) = self.into_parts();
        match factory.crash(store).await {
            Some(store) => Ok(Self::from_parts(store, clock)),
            None => Err(Stop::Skipped("durability is declared absent")),
        }
    }

    /// The store with a damaged record; skips the case where none can be damaged.
    pub(super) async fn damage<F: Factory<Store = S>>(
        self,
        factory: &F,
        id: OperationId,
    ) -> Result<Self, Stop> {
        let (store, clock) = self.into_parts();
        match factory.damage(store, id).await {
            Some(store) => Ok(Self::from_parts(store, clock)),
            None => Err(Stop::Skipped("nothing can be damaged")),
        }
    }

    fn into_parts(self) -> (S, Option<ManualClock>) {
        let store = Arc::into_inner(self.store);
        let store = store.expect("a case that hands its store over shares it with nobody");
        (store, self.clock)
    }

    fn from_parts(store: S, clock: Option<ManualClock>) -> Self {
        let store = Arc::new(store);
        Self { store, clock }
    }

    pub(super) fn clock(&self) -> Result<&ManualClock, Stop> {
        let clock = self.clock.as_ref();
        clock.ok_or(Stop::Skipped("its clock cannot be moved"))
    }

    pub(super) async fn pass(&self, duration: Duration) {
        match &self.clock {
            Some(clock) => clock.advance(duration),
            None => tokio::time::sleep(duration).await,
        }
    }

    /// Until the store's clock says later than `moment`.
    pub(super) async fn pass_until(&self, moment: StoreTime) -> Outcome {
        while self.now().await? <= moment {
            self.pass(BRIEF).await;
        }
        Ok(())
    }
}

impl<S: Maintain> Lab<S> {
    /// Deletes what has expired by now.
    pub(super) async fn sweep(&self, limit: usize) -> Result<Swept, Stop> {
        Ok(self.store.sweep(self.now().await?, limit).await?)
    }

    /// Skips the case where the store deletes what has expired by itself.
    pub(super) fn keeps_expired(&self) -> Outcome {
        match self.store.limits().expires_by_itself {
            false => Ok(()),
            true => Err(Stop::Skipped("the store deletes what has expired by itself")),
        }
    }

    /// Puts the record of a [`brief`](writes::brief) draft, and lets its time to live pass. `None` if the store has
    /// then deleted the record by itself; then it must have, and only because the record had expired.
    pub(super) async fn expired(
        &self,
        draft: &Draft,
        state: StateKind,
    ) -> Result<Option<Record>, Stop> {
        let expires = matches!(state, StateKind::Released | StateKind::Completed);
        if !(expires && self.store.limits().expires_by_itself) {
            let record = self.put(draft, state).await?;
            self.pass(BRIEF).await;
            return Ok(Some(record));
        }
        self.won(draft).await?;
        let is_release = state == StateKind::Released;
        let write = if is_release { Write::vouch(draft) } else { Write::settle(draft) };
        let Swap::Done(_) = self.swap(&write).await? else {
            return failed(format!("stale, though its guard holds: {write:?}"));
        };
        self.pass(BRIEF).await;
        self.absent(draft.id).await.map(|()| None)
    }
}

/// Reading and claiming.
impl<S: Store> Lab<S> {
    pub(super) async fn load(&self, id: OperationId) -> Result<Seen, Stop> {
        Ok(self.store.load(id).await?)
    }

    /// The record, which must be there.
    pub(super) async fn record(&self, id: OperationId) -> Result<Record, Stop> {
        match self.load(id).await?.record {
            Some(record) => Ok(record),
            None => failed("a record that must be there is absent"),
        }
    }

    pub(super) async fn absent(&self, id: OperationId) -> Outcome {
        equal("the record", self.load(id).await?.record, None)
    }

    /// It must still be what it was.
    pub(super) async fn unchanged(&self, id: OperationId, before: &Record) -> Outcome {
        equal("the record", &self.record(id).await?, before)
    }

    pub(super) async fn now(&self) -> Result<StoreTime, Stop> {
        Ok(self.load(writes::id(0)).await?.now)
    }

    pub(super) async fn claim(&self, draft: &Draft) -> Result<Seen, Stop> {
        Ok(self.store.claim(draft.clone()).await?)
    }

    /// The record after a claim that must be won.
    pub(super) async fn won(&self, draft: &Draft) -> Result<Record, Stop> {
        let seen = self.claim(draft).await?;
        match seen.record {
            Some(record) if seen.mine => Ok(record),
            found => failed(format!("the claim is not ours: {found:?}")),
        }
    }

    /// Claims, and brings the record to the state asked for.
    pub(super) async fn put(&self, draft: &Draft, state: StateKind) -> Result<Record, Stop> {
        let record = self.won(draft).await?;
        match state {
            StateKind::Running => Ok(record),
            StateKind::Unknown => self.done(&Write::mark_unknown(draft)).await,
            StateKind::Released => self.done(&Write::vouch(draft)).await,
            StateKind::Completed => self.done(&Write::settle(draft)).await,
        }
    }
}

/// Writing.
impl<S: Store> Lab<S> {
    pub(super) async fn swap(&self, write: &Write) -> Result<Swap, Stop> {
        Ok(swap(&*self.store, write).await?)
    }

    /// The record after a write that must be done; its revision must be the one that was answered.
    pub(super) async fn done(&self, write: &Write) -> Result<Record, Stop> {
        let Swap::Done(revision) = self.swap(write).await? else {
            return failed(format!("stale, though its guard holds: {write:?}"));
        };
        let record = self.record(write.id).await?;
        equal("the revision", record.revision(), revision)?;
        Ok(record)
    }

    /// The record must be absent after a write that must be done.
    pub(super) async fn gone(&self, write: &Write) -> Outcome {
        let Swap::Done(_) = self.swap(write).await? else {
            return failed(format!("stale, though its guard holds: {write:?}"));
        };
        self.absent(write.id).await
    }

    /// The write must be refused with what is there, and must change nothing.
    pub(super) async fn stale(&self, write: &Write) -> Outcome {
        let before = self.load(write.id).await?.record;
        let Swap::Stale(seen) = self.swap(write).await? else {
            return failed(format!("done, though its guard does not hold: {write:?}"));
        };
        equal("the record of the answer", &seen.record, &before)?;
        equal("the record", self.load(write.id).await?.record, before)
    }

    pub(super) async fn renew(&self, held: &[&Draft]) -> Result<Vec<Beat>, Stop> {
        let held: Vec<_> = held.iter().map(|draft| (draft.id, draft.token)).collect();
        Ok(renew(&*self.store, &held).await?)
    }
}

/// Many at once.
impl<S: Store> Lab<S> {
    /// All of them start at the same moment.
    pub(super) async fn race<T: Send + 'static, R>(
        &self,
        racers: u8,
        racer: impl Fn(Arc<S>, u8) -> R,
    ) -> Result<Vec<T>, Stop>
    where
        R: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let start = Arc::new(tokio::sync::Barrier::new(usize::from(racers)));
        let mut tasks = JoinSet::new();
        for number in 0..racers {
            let (start, run) = (start.clone(), racer(self.store.clone(), number));
            tasks.spawn(async move {
                start.wait().await;
                run.await
            });
        }
        let results = tasks.join_all().await;
        Ok(results.into_iter().collect::<Result<_, _>>()?)
    }
}

/// Two at once; which of them comes first changes from round to round.
pub(super) async fn duel<A: Send + 'static, B: Send + 'static>(
    round: usize,
    one: impl Future<Output = Result<A, Fault>> + Send + 'static,
    two: impl Future<Output = Result<B, Fault>> + Send + 'static,
) -> Result<(A, B), Stop> {
    let (one, two) = if round.is_multiple_of(2) {
        let one = tokio::spawn(one);
        (one, tokio::spawn(two))
    } else {
        let two = tokio::spawn(two);
        (tokio::spawn(one), two)
    };
    let one = one.await.map_err(|panic| Stop::Failed(panic.to_string()))?;
    let two = two.await.map_err(|panic| Stop::Failed(panic.to_string()))?;
    Ok((one?, two?))
}

pub(super) async fn swap<S: Store>(store: &S, write: &Write) -> Result<Swap, Fault> {
    let Write { id, guard, to } = write.clone();
    store.swap(id, guard, to).await
}

pub(super) async fn renew<S: Store>(
    store: &S,
    held: &[(OperationId, Token)],
) -> Result<Vec<Beat>, Fault> {
    store.renew(held, Lease::new(LEASE)).await
}
