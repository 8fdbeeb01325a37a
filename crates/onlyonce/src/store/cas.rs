//! What each write makes of a record: the compare and the swap, without the store.
//!
//! Stores that hold records in memory call these under their lock; stores that speak another
//! language restate them. They know guards and times, and no policy.

#[cfg(any(feature = "postgres", feature = "redis", feature = "dynamodb"))]
use std::ops::ControlFlow;

use crate::clock::StoreTime;
use crate::planted::{Planted, planted};
use crate::record::{Record, Revision, State, Token};
use crate::store::{Draft, Guard, Lease, Next, Takeover};
#[cfg(any(feature = "postgres", feature = "redis", feature = "dynamodb"))]
use crate::store::{Seen, Swap};

/// The record that `draft` inserts; `None` if there is one already or the draft came too late.
pub fn claim(current: Option<&Record>, draft: &Draft, now: StoreTime) -> Option<Record> {
    let may_insert = current.is_none() && now <= draft.not_after;
    may_insert.then(|| first_attempt(draft, now))
}

/// Whether `current` is running with the draft's token: the claim is ours, however often it was sent.
pub fn is_mine(current: Option<&Record>, draft: &Draft) -> bool {
    current.is_some_and(|record| {
        record.token == draft.token && matches!(record.state, State::Running { .. })
    })
}

/// What a swap does to a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write this; the revision is the one it will have.
    Write(Box<Record>),
    /// Delete it. The revision names the deletion.
    Delete(Revision),
    /// Nothing: it already is what this write makes it.
    Already(Revision),
    /// Nothing: the guard does not hold.
    Stale,
}

/// What becomes of `current` under `guard` and `to`.
pub fn swap(current: Option<&Record>, guard: &Guard, to: &Next, now: StoreTime) -> Effect {
    if let Some(revision) = already(current, guard, to) {
        return Effect::Already(revision);
    }
    match current {
        Some(record) if holds(guard, record) && now <= to.not_after() => written(record, to, now),
        _ => Effect::Stale,
    }
}

/// The revision of a record that was read, and the record that is to replace exactly it; `None`: it is to be deleted.
#[cfg(any(feature = "postgres", feature = "redis", feature = "dynamodb"))]
pub(crate) type Put = (Revision, Option<Box<Record>>);

/// For a store elsewhere, which has read the record first: how the swap is answered, or what is to be put.
#[cfg(any(feature = "postgres", feature = "redis", feature = "dynamodb"))]
pub(crate) fn judge(seen: Seen, guard: &Guard, to: &Next) -> ControlFlow<Swap, Put> {
    let read = seen.record.as_ref().map(Record::revision);
    match (swap(seen.record.as_ref(), guard, to, seen.now), read) {
        (Effect::Already(revision), _) => ControlFlow::Break(Swap::Done(revision)),
        (Effect::Write(record), Some(read)) => ControlFlow::Continue((read, Some(record))),
        (Effect::Delete(_), Some(read)) => ControlFlow::Continue((read, None)),
        _ => ControlFlow::Break(Swap::Stale(Box::new(seen))),
    }
}

/// The record with its lease extended, if `token` still owns it and it runs.
pub fn renew(
    current: Option<&Record>,
    token: Token,
    lease: Lease,
    now: StoreTime,
) -> Option<Record> {
    let record = current.filter(|record| record.token == token)?;
    let State::Running { .. } = record.state else {
        return None;
    };
    let lease_until = now.plus_ms(lease.as_ms());
    Some(Record {
        state: State::Running { lease_until },
        count: record.count + 1,
        ..record.clone()
    })
}

fn holds(guard: &Guard, record: &Record) -> bool {
    match guard {
        Guard::Owner { token, states } => {
            (record.token == *token || planted(Planted::NoFence))
                && states.contains(record.state.kind())
        }
        Guard::Unchanged(revision) => record.revision() == *revision,
    }
}

/// The revision that an earlier copy of this very write left, if one did.
pub(crate) fn already(current: Option<&Record>, guard: &Guard, to: &Next) -> Option<Revision> {
    let Some(record) = current else {
        return matches!(to, Next::Absent).then(|| deletion(guard));
    };
    let same = record.token == token_after(guard, to)
        && is_outcome(record, to)
        && not_before(record, guard);
    same.then(|| record.revision())
}

/// The token that the record has after this write.
pub(crate) fn token_after(guard: &Guard, to: &Next) -> Token {
    match (to, guard) {
        (Next::Running(attempt), _) => attempt.draft.token,
        (Next::Completed { token: Some(token), .. }, _) => *token,
        (Next::Replaced(record), _) => record.token,
        (_, Guard::Owner { token, .. } | Guard::Unchanged(Revision { token, .. })) => *token,
    }
}

/// A write that names a revision under the same token made a later one.
fn not_before(record: &Record, guard: &Guard) -> bool {
    match guard {
        Guard::Owner { .. } => true,
        Guard::Unchanged(revision) => {
            record.token != revision.token || record.count > revision.count
        }
    }
}

fn is_outcome(record: &Record, to: &Next) -> bool {
    match (&record.state, to) {
        (State::Running { .. }, Next::Running(attempt)) => record.attempt == attempt.attempt,
        (State::Unknown { since }, Next::Unknown { since: to }) => to.is_none_or(|to| to == *since),
        (State::Released { expires_at }, Next::Released { expires_at: to }) => {
            to.is_none_or(|to| to == *expires_at)
        }
        (
            State::Completed { settled_by, response, .. },
            Next::Completed { settled_by: by, response: to, .. },
        ) => settled_by == by && response == to,
        (_, Next::Replaced(to)) => record == &**to,
        _ => false,
    }
}

/// The revision that names the deletion of a record: there is no record left that could have one.
pub(crate) fn deletion(guard: &Guard) -> Revision {
    match guard {
        Guard::Owner { token, .. } => Revision { token: *token, count: u64::MAX },
        Guard::Unchanged(revision) => Revision { count: u64::MAX, ..*revision },
    }
}

fn written(record: &Record, to: &Next, now: StoreTime) -> Effect {
    let kept_from = if planted(Planted::TtlFromStart) { record.first_claimed_at } else { now };
    let state = match to {
        Next::Absent => {
            return Effect::Delete(Revision { count: u64::MAX, ..record.revision() });
        }
        Next::Running(attempt) => return Effect::Write(Box::new(later_attempt(attempt, now))),
        Next::Replaced(record) => return Effect::Write(record.clone()),
        Next::Unknown { since } => State::Unknown { since: since.unwrap_or(now) },
        Next::Released { expires_at } => {
            State::Released { expires_at: expires_at.unwrap_or(now.plus_ms(record.ttl_ms)) }
        }
        Next::Completed { settled_by, response, .. } => State::Completed {
            expires_at: kept_from.plus_ms(record.ttl_ms),
            settled_by: *settled_by,
            response: response.clone(),
        },
    };
    let revision = next_revision(record, to);
    let (token, count) = (revision.token, revision.count);
    Effect::Write(Box::new(Record { token, count, state, ..record.clone() }))
}

fn next_revision(record: &Record, to: &Next) -> Revision {
    match to {
        Next::Completed { token: Some(token), .. } => Revision { token: *token, count: 1 },
        _ => Revision { token: record.token, count: record.count + 1 },
    }
}

/// The record that a first attempt makes at `now`.
pub(crate) fn first_attempt(draft: &Draft, now: StoreTime) -> Record {
    Record {
        token: draft.token,
        count: 1,
        attempt: 1,
        state: State::Running { lease_until: now.plus_ms(draft.lease.as_ms()) },
        taken_from: None,
        key: draft.key.clone(),
        fingerprint: draft.fingerprint,
        principal: draft.principal,
        route: draft.route.clone(),
        target: draft.target.clone(),
        first_claimed_at: now,
        lease_ms: draft.lease.as_ms(),
        quiet_ms: draft.quiet_ms,
        ttl_ms: draft.ttl_ms,
    }
}

/// The record that a later attempt makes at `now`.
pub(crate) fn later_attempt(attempt: &Takeover, now: StoreTime) -> Record {
    Record {
        attempt: attempt.attempt,
        taken_from: attempt.taken_from,
        first_claimed_at: attempt.first_claimed_at.unwrap_or(now),
        ..first_attempt(&attempt.draft, now)
    }
}
