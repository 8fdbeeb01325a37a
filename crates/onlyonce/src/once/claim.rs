//! Claims an operation for a request, or finds the answer that the request gets instead.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::claim_guard::ClaimGuard;
use super::disown::Place;
use super::events::event_of;
use super::flight::Joined;
use super::wait::by_record;
use super::{Ask, Inner, Refusal};
use crate::clock::{StoreTime, as_ms};
use crate::crash::{CrashPoint, crash_during, crash_point};
use crate::engine::{Asked, Decision, Write, decide};
use crate::policy::StoreDown;
use crate::record::{SettledBy, TakenFrom, Token};
use crate::store::audit::About;
use crate::store::{Draft, Fault, Lease, Next, Seen, StoreError, Swap};

/// A claim that the store has taken for this request.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) guard: ClaimGuard,
    /// 1, 2, 3…
    pub(crate) attempt: u32,
}

/// Why a store call gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The call has not happened and never will: the store cannot be reached.
    Unavailable,
    /// The call has not happened and never will, although the store is there: busy or closed.
    NotDone,
    /// The call has not happened and never will: there is a record, and it cannot be read.
    Unreadable,
    /// The call may have happened, or may still happen.
    Unsure,
}

impl From<Fault> for NoAnswer {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotDone(StoreError::Unavailable(_)) => Self::Unavailable,
            Fault::NotDone(StoreError::Unreadable(_)) => Self::Unreadable,
            Fault::NotDone(_) => Self::NotDone,
            Fault::Unsure(_) => Self::Unsure,
        }
    }
}

impl NoAnswer {
    /// Of a store that has shown a record, or would have to be asked for one: `store_down = "pass"` must not run unguarded.
    const fn after_record(self) -> Self {
        match self {
            Self::Unavailable | Self::NotDone | Self::Unsure => Self::Unsure,
            Self::Unreadable => Self::Unreadable,
        }
    }
}

/// Why a claim shows no record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotClaimed {
    NoAnswer(NoAnswer),
    /// The key is free, and a limit of the route is used up for so long.
    VelocityExceeded {
        wait: Duration,
    },
}

impl Inner {
    /// Claims the operation, or returns the answer that the caller gets instead.
    pub(crate) async fn claim(&self, ask: &Ask) -> Result<Claim, Refusal> {
        if let Some(why) = ask.barred(self.clock.boot()) {
            return Err(self.by_record(ask, why).await);
        }
        crash_point(CrashPoint::BeforeClaim);
        for round in 0..ROUNDS_MAX {
            let claimed_at = self.clock.boot();
            let draft = self.draft(ask).await?;
            let about = self.about_request(ask, 1);
            let place = self.place(&draft, None, about.clone())?;
            let seen = self.claim_once(ask, &draft, about.as_ref(), place).await;
            let (seen, place) = seen.map_err(|why| match (why, round) {
                (NotClaimed::VelocityExceeded { wait }, _) => Refusal::VelocityExceeded { wait },
                (NotClaimed::NoAnswer(no_answer), 0) => self.no_answer(ask, no_answer),
                (NotClaimed::NoAnswer(no_answer), _) => {
                    self.no_answer(ask, no_answer.after_record())
                }
            })?;
            let asked = Asked { draft: &draft, recovery: ask.policy.recovery() };
            match decide(&seen, asked) {
                Decision::Execute { attempt, taken_from } => {
                    let from = (taken_from, about);
                    return Ok(self.guarded(&draft, attempt, from, claimed_at, place));
                }
                Decision::Take(write) => {
                    place.known();
                    if let Some(claim) = self.take(ask, &draft, *write, claimed_at).await? {
                        return Ok(claim);
                    }
                }
                // The claim reached the store after its `not_after`: try again with the store's own time.
                Decision::GiveUp if seen.record.is_none() => {}
                Decision::GiveUp => return Err(Refusal::InProgress),
                other => {
                    place.known();
                    self.settle_unclaimed(ask, &seen, other).await?;
                }
            }
        }
        Err(Refusal::InProgress)
    }

    /// The answer to a request that may not be executed: by the record, or `why` if the key is free.
    pub(super) async fn by_record(&self, ask: &Ask, why: Refusal) -> Refusal {
        match self.store.load(ask.id).await {
            Ok(seen) => by_record(&seen, ask).unwrap_or(why),
            Err(fault) => self.no_answer(ask, NoAnswer::from(fault).after_record()),
        }
    }

    /// The answer to a request whose caller has as many keys as the route keeps, unless its key is one of them.
    pub(super) async fn too_many_keys(&self, ask: &Ask) -> Option<Refusal> {
        let wait = self.live_keys.full_for(&ask.policy, ask.principal, self.clock.boot())?;
        match self.store.load(ask.id).await {
            Ok(seen) if by_record(&seen, ask).is_some() => None,
            Ok(_) => Some(Refusal::TooManyKeys { wait }),
            Err(fault) => Some(self.no_answer(ask, NoAnswer::from(fault).after_record())),
        }
    }

    /// Acts on decisions other than executing and taking: either the answer for the caller, or a write after which
    /// the next round decides anew.
    async fn settle_unclaimed(
        &self,
        ask: &Ask,
        seen: &Seen,
        decision: Decision,
    ) -> Result<(), Refusal> {
        match decision {
            Decision::Replay(response) => {
                if let Some(record) = &seen.record {
                    self.cache.keep(ask.id, record, self.clock.boot());
                }
                Err(Refusal::Replay(response))
            }
            Decision::Reused => Err(Refusal::Reused),
            Decision::Respelled => Err(Refusal::Respelled),
            Decision::Unknown { since } => Err(Refusal::Unknown { since }),
            Decision::Reconcile { since } => self.reconcile(ask, seen, since).await,
            Decision::Release(write) => self.clear(ask, seen, *write).await,
            Decision::Fail(_) => {
                let record = seen.record.as_ref();
                let write = record
                    .and_then(|r| Write::settle_for(r, SettledBy::Policy, ask.failure.clone()));
                match write {
                    Some(write) => self.clear(ask, seen, write).await,
                    None => Err(Refusal::InProgress),
                }
            }
            Decision::InProgress
            | Decision::Execute { .. }
            | Decision::Take(_)
            | Decision::GiveUp => Err(Refusal::InProgress),
        }
    }

    /// Writes to a record that has no live owner; the next round reads the result.
    pub(super) async fn clear(&self, ask: &Ask, seen: &Seen, write: Write) -> Result<(), Refusal> {
        let (kind, status) = event_of(&write);
        let write = match &seen.record {
            Some(record) => self.with_record(write, record, None),
            None => write,
        };
        let swap = self.swap_until_known(ask, write).await;
        if let Ok(Swap::Done(_)) = swap {
            self.tell_of(ask, kind, None, status);
        }
        // Whether this was written or not.
        swap.map(drop).map_err(|no_answer| self.no_answer(ask, no_answer.after_record()))
    }

    /// Takes over a record that has no live owner; `None` if another request was first.
    async fn take(
        &self,
        ask: &Ask,
        draft: &Draft,
        write: Write,
        claimed_at: Duration,
    ) -> Result<Option<Claim>, Refusal> {
        let Next::Running(next) = &write.next else {
            return Ok(None);
        };
        let (attempt, taken_from) = (next.attempt, next.taken_from);
        let about = self.about_request(ask, attempt);
        let place = self.place(draft, taken_from, about.clone())?;
        let write = write.with_about(about.clone());
        match self.swap_until_known(ask, write).await {
            Ok(Swap::Done(_)) => {
                crash_point(CrashPoint::AfterTakeover);
                // A record that had expired is taken for a first attempt.
                if attempt > 1 {
                    ask.counters.takeovers.one();
                }
                Ok(Some(self.guarded(draft, attempt, (taken_from, about), claimed_at, place)))
            }
            // An earlier copy of this write took the record, and its lease lapsed before the answer came. Nothing was
            // sent, so dropping `place` releases the claim.
            Ok(Swap::Stale(seen)) if is_of(&seen, draft) => Err(Refusal::InProgress),
            Ok(Swap::Stale(_)) => {
                place.known();
                Ok(None)
            }
            Err(no_answer) => {
                match no_answer {
                    NoAnswer::Unavailable | NoAnswer::NotDone | NoAnswer::Unreadable => {
                        place.known()
                    }
                    NoAnswer::Unsure => ask.counters.disowned.one(),
                }
                // Whether it was taken or not.
                Err(self.no_answer(ask, no_answer.after_record()))
            }
        }
    }

    /// The store's answer to this claim, or to the claim of another caller of the same id that this one joined.
    async fn claim_once(
        &self,
        ask: &Ask,
        draft: &Draft,
        about: Option<&Arc<About>>,
        place: Place,
    ) -> Result<(Seen, Place), NotClaimed> {
        let joined = self.claims.join(draft.id, || self.claim_within_limits(ask, draft, about));
        match joined.await {
            Joined::Led(Ok(seen)) => Ok((seen, place)),
            Joined::Led(Err(why @ NotClaimed::NoAnswer(NoAnswer::Unsure))) => {
                ask.counters.disowned.one();
                Err(why)
            }
            // A follower's own claim was never sent, so its place is free; the answer of its leader is its answer.
            Joined::Led(Err(why)) | Joined::Followed(Err(why)) => {
                place.known();
                Err(why)
            }
            Joined::Followed(Ok(seen)) => Ok((Seen { mine: false, ..seen }, place)),
        }
    }

    /// Where the route has velocity limits, the record is read first: only an operation that begins counts. Callers of one
    /// id share this, so that a burst of duplicates counts once.
    async fn claim_within_limits(
        &self,
        ask: &Ask,
        draft: &Draft,
        about: Option<&Arc<About>>,
    ) -> Result<Seen, NotClaimed> {
        if !ask.allowances.is_empty() {
            let loaded = self.store.load(ask.id).await;
            match loaded {
                Ok(seen) if by_record(&seen, ask).is_some() => return Ok(seen),
                // Without the store nothing begins, so nothing counts.
                Err(fault) if ask.policy.store_down() == StoreDown::Refuse => {
                    return Err(NotClaimed::NoAnswer(fault.into()));
                }
                Ok(_) | Err(_) => {}
            }
            if let Some(wait) = self.admit(ask).await {
                return Err(NotClaimed::VelocityExceeded { wait });
            }
        }
        self.claim_until_known(draft, about).await.map_err(NotClaimed::NoAnswer)
    }

    /// Repeats the identical claim until the store has answered, or the caller must be answered.
    async fn claim_until_known(
        &self,
        draft: &Draft,
        about: Option<&Arc<About>>,
    ) -> Result<Seen, NoAnswer> {
        let claim = || self.store.claim(draft.clone(), about.cloned());
        self.until_known(|| crash_during(CrashPoint::ClaimSent, claim())).await
    }

    async fn swap_until_known(&self, ask: &Ask, write: Write) -> Result<Swap, NoAnswer> {
        self.until_known(|| self.store.swap(ask.id, write.clone())).await
    }

    async fn until_known<T, F>(&self, call: impl Fn() -> F) -> Result<T, NoAnswer>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let end = self.clock.boot() + CLAIM_WAIT;
        let mut is_on_its_way = false;
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                // Once a copy may be on its way, only an answer of the store tells what happened.
                Err(fault @ Fault::NotDone(_)) if !is_on_its_way => return Err(fault.into()),
                Err(_) => is_on_its_way = true,
            }
            if self.clock.boot() >= end {
                return Err(NoAnswer::Unsure);
            }
            sleep(CLAIM_PAUSE).await;
        }
    }

    fn guarded(
        &self,
        draft: &Draft,
        attempt: u32,
        (taken_from, about): (Option<TakenFrom>, Option<Arc<About>>),
        claimed_at: Duration,
        place: Place,
    ) -> Claim {
        let Draft { id, token, lease, .. } = *draft;
        let guard = self.live_claims.guard(id, token, lease, taken_from, about, claimed_at);
        place.known();
        Claim { guard, attempt }
    }

    /// Reserves a place on the list of disowned claims, before the claim is sent.
    fn place(
        &self,
        draft: &Draft,
        taken_from: Option<TakenFrom>,
        about: Option<Arc<About>>,
    ) -> Result<Place, Refusal> {
        let release = Write::release(draft.token, taken_from).with_about(about);
        let place = self.disowned.reserve(draft.id, release, draft.not_after);
        place.ok_or(Refusal::Overloaded)
    }

    fn no_answer(&self, ask: &Ask, no_answer: NoAnswer) -> Refusal {
        let is_unreachable = match no_answer {
            NoAnswer::Unreadable => return Refusal::Unreadable,
            NoAnswer::Unavailable => true,
            NoAnswer::NotDone | NoAnswer::Unsure => false,
        };
        Refusal::StoreDown { is_unreachable, policy: ask.policy.store_down() }
    }

    async fn draft(&self, ask: &Ask) -> Result<Draft, Refusal> {
        let now = self.store_now(ask).await?;
        let policy = &ask.policy;
        Ok(Draft {
            id: ask.id,
            token: Token::random(),
            key: ask.key.clone(),
            fingerprint: ask.fingerprint,
            principal: ask.principal,
            route: Arc::clone(policy.route()),
            target: ask.target.clone(),
            lease: Lease::new(policy.lease()),
            quiet_ms: as_ms(policy.lease().saturating_add(policy.upstream_timeout())),
            ttl_ms: as_ms(policy.ttl()),
            not_after: now.plus(CLAIM_NOT_AFTER),
        })
    }

    /// The time of the store's own clock. Loads a record for it only if no answer of the store has told it yet.
    async fn store_now(&self, ask: &Ask) -> Result<StoreTime, Refusal> {
        if let Some(now) = self.store.time().store_now() {
            return Ok(now);
        }
        let seen = self.store.load(ask.id).await;
        seen.map(|seen| seen.now).map_err(|fault| self.no_answer(ask, NoAnswer::from(fault)))
    }
}

/// Whether the record that was seen belongs to this attempt, in any state.
fn is_of(seen: &Seen, draft: &Draft) -> bool {
    let record = seen.record.as_ref();
    record.is_some_and(|record| record.token == draft.token)
}

/// How often a claim looks again after the record changed under it.
const ROUNDS_MAX: usize = 4;
/// How long a caller waits for its claim.
const CLAIM_WAIT: Duration = Duration::from_secs(5);
/// Pause between two copies of a claim.
const CLAIM_PAUSE: Duration = Duration::from_millis(20);
/// How long after it was made a copy of a claim may still insert a record.
const CLAIM_NOT_AFTER: Duration = Duration::from_secs(10);
