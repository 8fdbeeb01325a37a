//! One operation, from its claim to its outcome, in a task of its own.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ctutils::CtEq;
use futures_util::future::join;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{sleep, timeout};
use tracing::{Instrument, debug_span, warn};

use super::any_store::BoxFuture;
use super::claim::Claim;
use super::claim_guard::{ClaimGuard, UnderWay};
use super::events::event_of;
use super::live_keys::LiveKey;
use super::permission::Asked;
use super::settle::Settled;
use super::wait::by_record;
use super::{Ask, Ended, Inner, Refusal};
use crate::clock::StoreTime;
use crate::crash::{CrashPoint, crash_during, crash_point};
use crate::engine::Write;
use crate::event::EventKind;
use crate::fingerprint::{Digest, Fingerprint};
use crate::planted::{Planted, planted};
use crate::policy::{InFlight, Keep, Policy, Recovery, StoreDown};
use crate::record::{Response, SettledBy, TakenFrom};
use crate::scope::OperationId;
use crate::store::{Next, Seen, Swap};

/// The result of the work, for the record and for the caller.
pub(crate) struct Worked<T> {
    pub(crate) verdict: Verdict,
    /// The answer for the first caller.
    pub(crate) fresh: T,
    /// Work that remains after the first caller has its answer: the rest of a stream.
    pub(crate) after: Option<BoxFuture<'static, ()>>,
    /// The memory permit of a large answer, until the answer is stored.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

impl<T> Worked<T> {
    /// A result with nothing left to do.
    pub(crate) fn new(verdict: Verdict, fresh: T) -> Self {
        Self { verdict, fresh, after: None, room: None }
    }
}

/// How the record is to end.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Store this response as the final outcome.
    Store(Arc<Response>),
    /// The answer says that nothing was executed: release the claim, and pass the answer on as it is.
    NotExecuted,
    /// Nothing was sent: release the claim. If an earlier attempt may have executed the operation, the caller is told
    /// that its outcome is unknown.
    NotSent,
    /// The outcome is unknown; `recovery = "fail"` stores this response.
    Unknown(Arc<Response>),
}

impl Inner {
    /// [Performs](Self::perform) the operation. Where another request is at it and the policy says so, waits for the
    /// end of that one. What the record says is told if it is `permitted`. Counts how the request ended.
    pub(crate) async fn answer<T, W, F>(
        self: &Arc<Self>,
        ask: Arc<Ask>,
        permitted: Option<Asked>,
        work: W,
    ) -> Ended<T>
    where
        T: Send + 'static,
        W: FnOnce(u32) -> F + Send + 'static,
        F: Future<Output = Worked<T>> + Send + 'static,
    {
        let ended = match (self.perform(ask.clone(), work).await, ask.policy.in_flight()) {
            (Ended::Refused(Refusal::InProgress), InFlight::Wait(wait)) => {
                let left = ask.left(self.clock.boot());
                self.wait(&ask, left.map_or(wait, |left| left.min(wait))).await
            }
            (ended, _) => ended,
        };
        let ended = match ended {
            Ended::Refused(refusal) => {
                Ended::Refused(refusal.permitted(permitted, &ask.policy).await)
            }
            ended => ended,
        };
        self.ended(&ask, &ended);
        ended
    }

    /// Counts and tells how a request ended.
    pub(crate) fn ended<T>(&self, ask: &Ask, ended: &Ended<T>) {
        ask.counters.ended(ended);
        if let Ended::Refused(refusal) = ended {
            self.tell_refused(ask, refusal);
        }
    }

    /// Runs `work` at most once for the operation, or returns the answer that the caller gets instead.
    ///
    /// The work runs in a task of its own: dropping this future does not stop it.
    pub(crate) async fn perform<T, W, F>(self: &Arc<Self>, ask: Arc<Ask>, work: W) -> Ended<T>
    where
        T: Send + 'static,
        W: FnOnce(u32) -> F + Send + 'static,
        F: Future<Output = Worked<T>> + Send + 'static,
    {
        let Some(under_way) = self.live_claims.begin() else {
            return Ended::Refused(Refusal::Overloaded);
        };
        let (tell, told) = oneshot::channel();
        let task = Task {
            once: self.clone(),
            ask,
            tell: Some(tell),
            attempt: None,
            settling_at: None,
            live_key: None,
            under_way: Some(under_way),
        };
        match planted(Planted::CancelsWithClient) {
            true => Box::pin(task.run(work)).await,
            false => drop(tokio::spawn(task.run(work).in_current_span())),
        }
        // A task that died without telling may have executed the operation.
        told.await.unwrap_or(Ended::Unsettled)
    }

    /// What a request gets for an operation whose completed record is in the cache.
    ///
    /// Requests with equal bytes are the same, so the fingerprint of this one, for which its body is parsed, is made
    /// only where the bytes differ.
    pub(crate) fn cached(
        &self,
        id: OperationId,
        raw: &Digest,
        fingerprint: impl FnOnce() -> Fingerprint,
    ) -> Option<Refusal> {
        let boot = self.clock.boot();
        let (first, response) = self.cache.find(id, self.store.time().at(boot)?, boot)?;
        if first.raw.ct_eq(raw).to_bool() {
            return Some(Refusal::Replay(response));
        }
        let asked = fingerprint();
        Some(match first.matches(&asked) {
            true => Refusal::Replay(response),
            false => Refusal::reused(&first, &asked),
        })
    }

    /// [`cached`](Self::cached), for a request whose fingerprint is known.
    pub(crate) fn cached_for(&self, ask: &Ask) -> Option<Refusal> {
        self.cached(ask.id, &ask.fingerprint.raw, || ask.fingerprint)
    }
}

struct Task<T> {
    once: Arc<Inner>,
    ask: Arc<Ask>,
    /// The channel to the caller, who may have left; `None` once the caller was told.
    tell: Option<oneshot::Sender<Ended<T>>>,
    /// Which attempt of the operation this is, once it is claimed.
    attempt: Option<u32>,
    /// The store's time right before the outcome was first sent, and this node's.
    settling_at: Option<(StoreTime, Duration)>,
    /// The key, as it counts for its caller, if this is the first attempt.
    live_key: Option<LiveKey>,
    /// `None` once the outcome is in the store. A dying task drops its claim guard before this, so that a shutdown
    /// always sees one of the two.
    under_way: Option<UnderWay>,
}

impl<T: Send + 'static> Task<T> {
    async fn run<W, F>(mut self, work: W)
    where
        W: FnOnce(u32) -> F + Send + 'static,
        F: Future<Output = Worked<T>> + Send + 'static,
    {
        let Some(_place) = self.once.room.operation() else {
            return self.tell(Ended::Refused(Refusal::Overloaded));
        };
        let (ask, id) = (&self.ask, self.ask.id);
        if let Some(refusal) = self.once.too_many_keys(ask).await {
            return self.tell(Ended::Refused(refusal));
        }
        let span = debug_span!("claim", operation = %id, route = %ask.policy.route(), principal = ask.principal.short());
        let Claim { guard, attempt } = match self.once.claim(ask).instrument(span).await {
            Ok(claim) => claim,
            Err(Refusal::StoreDown { is_unreachable: true, policy: StoreDown::Pass }) => {
                return self.pass(work).await;
            }
            Err(refusal) => return self.tell(Ended::Refused(refusal)),
        };
        crash_point(CrashPoint::AfterClaim);
        if self.ask.is_late(self.once.clock.boot()) {
            return self.unsent(guard, Refusal::DeadlineExceeded).await;
        }
        if !guard.may_send(self.once.clock.boot()) {
            return self.unsent(guard, Refusal::Overloaded).await;
        }
        // A later attempt is of a key that counts already.
        if attempt == 1 {
            let boot = self.once.clock.boot();
            match self.once.live_keys.add(&self.ask.policy, self.ask.principal, boot) {
                Ok(live_key) => self.live_key = live_key,
                Err(wait) => return self.unsent(guard, Refusal::TooManyKeys { wait }).await,
            }
        }
        self.attempt = Some(attempt);
        self.ask.counters.executed.one();
        if attempt == 1 {
            self.once.note_begun(&self.ask);
            self.once.note_principal(&self.ask);
        }
        self.tell_event(EventKind::Claimed, None);
        let called_at = self.once.clock.boot();
        let span = debug_span!("execute", operation = %id, attempt);
        let working = crash_during(CrashPoint::AfterDispatch, work(attempt)).instrument(span);
        let worked = self.until_worked(&guard, working).await;
        crash_point(CrashPoint::AfterUpstream);
        self.ask.counters.handler.record(self.once.clock.boot().saturating_sub(called_at));
        self.conclude(guard, worked).await;
    }

    /// Waits for the work. It goes on after the caller's deadline, because its answer is the true outcome; until that is
    /// there, the outcome is unknown, and the caller is told so.
    async fn until_worked<F>(&mut self, guard: &ClaimGuard, working: F) -> Worked<T>
    where
        F: Future<Output = Worked<T>>,
    {
        let Some(left) = self.ask.left(self.once.clock.boot()) else {
            return working.await;
        };
        let mut working = pin!(working);
        match timeout(left, &mut working).await {
            Ok(worked) => worked,
            Err(_) => join(self.overdue(guard), working).await.1,
        }
    }

    /// Tells the caller, and marks the record unknown, if the store does so at once: the work has the same end without it.
    /// Only where unknown outcomes are held: elsewhere a retry would send the operation again, or close it, beside this work.
    async fn overdue(&mut self, guard: &ClaimGuard) {
        self.tell(Ended::Overdue);
        if self.ask.policy.recovery() != Recovery::Hold {
            return;
        }
        let write = Write::mark_unknown(guard.claim().token);
        let write = write.with_about(guard.claim().about.clone());
        if let Ok(Swap::Done(_)) = self.once.store.swap(self.ask.id, write).await {
            self.tell_event(EventKind::Unknown, None);
        }
    }

    /// The lease is nearly over, the process drains, or the deadline has passed: releases the claim, and sends nothing.
    async fn unsent(mut self, guard: ClaimGuard, why: Refusal) {
        // What was not sent says nothing about the unknown attempt that it was to repeat.
        let refusal = match guard.claim().taken_from {
            Some(TakenFrom::Unknown { since }) => Refusal::Unknown { since },
            _ => why,
        };
        let once = self.once.clone();
        let write = Write::release(guard.claim().token, guard.claim().taken_from)
            .with_about(guard.claim().about.clone());
        {
            let mut writing = Box::pin(once.write_until_known(guard.claim(), write));
            // The key is free when the caller hears of it, but a dead store does not hold up the caller.
            let in_time = timeout(self.ask.policy.lease(), &mut writing).await;
            self.tell(Ended::Refused(refusal));
            if in_time.is_err() {
                writing.await;
            }
        }
        self.ask.counters.released.one();
        guard.end();
    }

    /// `store_down = "pass"`: the work runs unguarded.
    async fn pass<W, F>(mut self, work: W)
    where
        W: FnOnce(u32) -> F,
        F: Future<Output = Worked<T>>,
    {
        self.ask.counters.passed.one();
        let worked = work(1).await;
        self.tell(by_verdict(&worked.verdict, worked.fresh));
        self.under_way = None;
        if let Some(after) = worked.after {
            after.await;
        }
    }

    /// Writes the outcome, then answers: the response is durable before its last byte leaves.
    async fn conclude(mut self, guard: ClaimGuard, worked: Worked<T>) {
        let once = self.once.clone();
        let Worked { verdict, fresh, after, room } = worked;
        let write = self.outcome(&guard, &verdict);
        if matches!(write.next, Next::Unknown { .. }) {
            let (id, route) = (self.ask.id, self.ask.policy.route());
            warn!(operation = %id, %route, "outcome unknown: the request was sent and has no whole answer");
        }
        // The audit trail is a store too.
        let write = redacted(write, &self.ask.policy);
        let write = once.with_answer(write, guard.claim().about.clone(), &self.ask.policy);
        let write = stored(write, &self.ask.policy);
        let event = event_of(&write);
        let mut fresh = Some(told(&guard, &verdict, fresh));
        let is_kept = matches!(verdict, Verdict::Store(_));
        let is_released = matches!(verdict, Verdict::NotExecuted | Verdict::NotSent);
        // From here on only the write holds the answer, so that giving the write up frees its memory.
        drop(verdict);
        if planted(Planted::CompletesBeforeCommit) {
            fresh.take().into_iter().for_each(|fresh| self.tell(fresh));
            sleep(WRITE_BEHIND).await;
        }
        // Read before the write, so that a cached copy never outlives the record, however late the store's answer comes.
        let boot = once.clock.boot();
        self.settling_at = once.store.time().at(boot).map(|now| (now, boot));
        {
            let span = debug_span!("settle", operation = %guard.claim().id);
            let settling = once.write_until_known(guard.claim(), write).instrument(span);
            let mut writing = Box::pin(settling);
            tokio::select! {
                biased;
                settled = &mut writing => self.answer(&guard, settled, event, fresh.take()),
                // The caller waits no longer. An answer that must be kept is not told before it is stored.
                () = sleep(self.ask.policy.lease()) => {
                    let late = fresh.take().filter(|_| !is_kept);
                    self.tell(late.unwrap_or(Ended::Unsettled));
                    let settled = writing.await;
                    self.answer(&guard, settled, event, None);
                }
            }
        }
        if is_released {
            self.ask.counters.released.one();
        }
        guard.end();
        drop(room);
        self.under_way = None;
        if let Some(after) = after {
            after.await;
        }
    }

    /// The write that the verdict and the route's recovery ask for.
    fn outcome(&self, guard: &ClaimGuard, verdict: &Verdict) -> Write {
        let (token, taken_from) = (guard.claim().token, guard.claim().taken_from);
        match verdict {
            Verdict::Store(response) => Write::settle(token, response.clone()),
            Verdict::NotExecuted | Verdict::NotSent => Write::release(token, taken_from),
            Verdict::Unknown(response) => match self.ask.policy.recovery() {
                Recovery::Hold | Recovery::Redrive { .. } | Recovery::Reconcile { .. } => {
                    Write::mark_unknown(token)
                }
                // The answer may be the service's own.
                Recovery::Fail if self.ask.policy.keep() == Keep::Status => {
                    Write::settle_by_policy(token, self.ask.failure.clone())
                }
                Recovery::Fail => Write::settle_by_policy(token, response.clone()),
                Recovery::Release => Write::release(token, taken_from),
            },
        }
    }

    fn answer(
        &mut self,
        guard: &ClaimGuard,
        settled: Settled,
        (kind, status): (EventKind, Option<u16>),
        fresh: Option<Ended<T>>,
    ) {
        self.count_key(&settled, kind);
        match settled {
            Settled::Done(kept) => {
                crash_point(CrashPoint::AfterSettle);
                self.tell_event(kind, status);
                kept.into_iter().for_each(|response| self.remember(response));
                fresh.into_iter().for_each(|fresh| self.tell(fresh));
            }
            Settled::GaveUp => {
                self.tell_event(EventKind::Unknown, None);
                self.tell(Ended::Unsettled);
            }
            Settled::Fenced(seen) => {
                self.ask.counters.fenced.one();
                let (id, route) = (self.ask.id, self.ask.policy.route());
                warn!(operation = %id, %route, "fenced: another attempt has the record, and this result was not stored");
                self.tell_event(EventKind::Fenced, None);
                self.tell(self.by_record(guard, &seen));
            }
        }
    }

    /// The key counts for its caller, with what is kept for it, unless it is free again.
    fn count_key(&mut self, settled: &Settled, kind: EventKind) {
        match (settled, self.live_key.take()) {
            (Settled::Done(Some(response)), Some(live_key)) => live_key.keeps(response.bytes()),
            (Settled::Done(None), Some(live_key)) if kind == EventKind::Released => {
                live_key.uncount();
            }
            _ => {}
        }
    }

    fn tell_event(&self, kind: EventKind, status: Option<u16>) {
        self.once.tell_of(&self.ask, kind, self.attempt, status);
    }

    /// A fenced owner answers from the record as every other request does, never with its own body: what is there now may
    /// be the answer to another request.
    fn by_record(&self, guard: &ClaimGuard, seen: &Seen) -> Ended<T> {
        let owner = seen.record.as_ref().map(|record| record.token);
        match by_record(seen, &self.ask) {
            Some(Refusal::InProgress) if owner == Some(guard.claim().token) => Ended::Unsettled,
            Some(refusal) => Ended::Refused(refusal),
            None => Ended::Unsettled,
        }
    }

    /// Puts the response that the store has taken into the cache.
    fn remember(&self, response: Arc<Response>) {
        let (once, ask) = (&self.once, &self.ask);
        if let Some((settling_at, boot)) = self.settling_at {
            let expires_at = settling_at.plus(ask.policy.ttl());
            once.cache.keep_response(ask.id, ask.fingerprint, response, expires_at, boot);
        }
    }

    /// Tells the caller, if it is still there and was not told before.
    fn tell(&mut self, ended: Ended<T>) {
        if let Some(tell) = self.tell.take() {
            let _ = tell.send(ended);
        }
    }
}

/// The write, with what the policy keeps of the answer of the work.
fn stored(write: Write, policy: &Policy) -> Write {
    let next = match write.next {
        Next::Completed { settled_by: SettledBy::Owner, response, token } => {
            let response = policy.stored(response);
            Next::Completed { settled_by: SettledBy::Owner, response, token }
        }
        next => next,
    };
    Write { next, ..write }
}

/// The write, without what the policy never stores of an answer.
fn redacted(write: Write, policy: &Policy) -> Write {
    let next = match write.next {
        Next::Completed { settled_by, response, token } => {
            Next::Completed { settled_by, response: policy.redacted(response), token }
        }
        next => next,
    };
    Write { next, ..write }
}

/// What the caller is told of its own attempt. An attempt that was not sent says nothing about the unknown attempt
/// that it was to repeat.
fn told<T>(guard: &ClaimGuard, verdict: &Verdict, fresh: T) -> Ended<T> {
    match (verdict, guard.claim().taken_from) {
        (Verdict::NotSent, Some(TakenFrom::Unknown { since })) => {
            Ended::Refused(Refusal::Unknown { since })
        }
        _ => by_verdict(verdict, fresh),
    }
}

/// How an attempt ended whose own result its caller gets.
fn by_verdict<T>(verdict: &Verdict, fresh: T) -> Ended<T> {
    match verdict {
        Verdict::Store(_) | Verdict::NotExecuted | Verdict::NotSent => Ended::Fresh(fresh),
        Verdict::Unknown(_) => Ended::Unclear(fresh),
    }
}

/// How long a planted bug keeps an answer from the store.
const WRITE_BEHIND: Duration = Duration::from_millis(300);
