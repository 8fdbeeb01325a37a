//! Times are the store's own, and what is not written stays.

use crate::clock::StoreTime;
use crate::record::{Record, State, StateKind, TakenFrom};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, Stop, between, ensure, equal, failed};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{BRIEF, SOON_MS, Write, draft, rival};
use crate::store::{Draft, Next, Store, Takeover};

// R108
pub(super) async fn the_time_to_live_counts_from_completion<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    lab.pass(BRIEF).await;
    let (earliest, record, latest) = timed(&lab, &Write::settle(&draft(1))).await?;
    let State::Completed { expires_at, .. } = record.state else {
        return ensure(false, "the record is completed");
    };
    let ttl_ms = draft(1).ttl_ms;
    between("expires_at", earliest.plus_ms(ttl_ms), expires_at, latest.plus_ms(ttl_ms))
}

pub(super) async fn a_released_record_is_kept_for_its_ttl<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    lab.pass(BRIEF).await;
    let write = Write::free(draft(1).id, &unknown);
    let (earliest, record, latest) = timed(&lab, &write).await?;
    let State::Released { expires_at } = record.state else {
        return ensure(false, "the record is released");
    };
    let ttl_ms = draft(1).ttl_ms;
    between("expires_at", earliest.plus_ms(ttl_ms), expires_at, latest.plus_ms(ttl_ms))
}

pub(super) async fn an_unknown_outcome_is_since_the_stores_now<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    lab.pass(BRIEF).await;
    let (earliest, record, latest) = timed(&lab, &Write::mark_unknown(&draft(1))).await?;
    let State::Unknown { since } = record.state else {
        return ensure(false, "the record is unknown");
    };
    between("since", earliest, since, latest)
}

pub(super) async fn an_attempt_returns_to_its_earlier_unknown<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    let State::Unknown { since } = unknown.state else {
        return ensure(false, "the record is unknown");
    };
    let second = rival(&draft(1), 2);
    lab.done(&Write::take(&second, &unknown)).await?;
    lab.pass(BRIEF).await;
    let write = Write::return_to_unknown(&second, since);
    let returned = lab.done(&write).await?;
    equal("the state", returned.state, unknown.state)
}

pub(super) async fn an_attempt_returns_to_its_earlier_release<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let released = lab.put(&draft(1), StateKind::Released).await?;
    let State::Released { expires_at } = released.state else {
        return ensure(false, "the record is released");
    };
    let second = rival(&draft(1), 2);
    lab.done(&Write::take(&second, &released)).await?;
    lab.pass(BRIEF).await;
    let write = Write::return_to_released(&second, expires_at);
    let returned = lab.done(&write).await?;
    equal("the state", returned.state, released.state)
}

/// Its number, its origin and the first claim are what it says; the rest is its draft's.
pub(super) async fn a_take_is_the_attempt_it_says<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    lab.pass(BRIEF).await;
    let anew = Draft { id: draft(1).id, ..draft(2) };
    let attempt = Takeover {
        draft: anew.clone(),
        attempt: 7,
        taken_from: Some(TakenFrom::Released { expires_at: StoreTime::from_ms(5) }),
        first_claimed_at: Some(StoreTime::from_ms(3)),
    };
    let to = Next::Running(Box::new(attempt));
    let taken = lab.done(&Write::by_other(anew.id, &unknown, to)).await?;
    equal("the attempt", taken.attempt, 7)?;
    let expires_at = StoreTime::from_ms(5);
    let origin = Some(TakenFrom::Released { expires_at });
    equal("taken_from", taken.taken_from, origin)?;
    let first = taken.first_claimed_at;
    equal("first_claimed_at", first, StoreTime::from_ms(3))?;
    equal("the token", taken.token, anew.token)?;
    equal("the key", taken.key, anew.key)?;
    equal("the fingerprint", taken.fingerprint, anew.fingerprint)?;
    equal("the principal", taken.principal, anew.principal)?;
    equal("the route", taken.route, anew.route)
}

pub(super) async fn a_take_of_nothing_earlier_is_first_claimed_now<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let completed = lab.put(&draft(1), StateKind::Completed).await?;
    lab.pass(BRIEF).await;
    let attempt = Takeover {
        draft: rival(&draft(1), 2),
        attempt: 1,
        taken_from: None,
        first_claimed_at: None,
    };
    let to = Next::Running(Box::new(attempt));
    let write = Write::by_other(draft(1).id, &completed, to);
    let (earliest, taken, latest) = timed(&lab, &write).await?;
    between("first_claimed_at", earliest, taken.first_claimed_at, latest)?;
    equal("taken_from", taken.taken_from, None)
}

pub(super) async fn a_take_after_its_not_after_writes_nothing<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let released = lab.put(&draft(1), StateKind::Released).await?;
    let not_after = lab.now().await?.plus_ms(-1);
    let late = Draft { not_after, ..rival(&draft(1), 2) };
    lab.stale(&Write::take(&late, &released)).await?;
    let in_time = Draft { not_after: lab.now().await?.plus_ms(SOON_MS), ..late };
    lab.done(&Write::take(&in_time, &released)).await.map(drop)
}

pub(super) async fn a_write_keeps_what_it_does_not_name<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let second = rival(&draft(1), 2);
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    let taken = lab.done(&Write::take(&second, &unknown)).await?;
    lab.pass(BRIEF).await;
    let mut last = taken.clone();
    for write in [Write::mark_unknown(&second), Write::vouch(&second), Write::settle(&second)] {
        last = lab.done(&write).await?;
        let expected = Record { count: last.count, state: last.state.clone(), ..taken.clone() };
        equal("the record", &last, &expected)?;
    }
    let decree = Write::decree(second.id, &last, draft(3).token);
    let decreed = lab.done(&decree).await?;
    equal("the attempt", decreed.attempt, taken.attempt)?;
    equal("taken_from", decreed.taken_from, taken.taken_from)?;
    equal("the key", decreed.key, taken.key)
}

// threat B8
pub(super) async fn time_ends_and_does_not_wrap<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let endless = Draft { ttl_ms: i64::MAX, quiet_ms: i64::MAX, ..draft(1) };
    let record = lab.put(&endless, StateKind::Completed).await?;
    ensure(
        matches!(record.state, State::Completed { expires_at, .. } if expires_at == StoreTime::MAX),
        "a ttl beyond the end of time ends there",
    )?;
    equal("quiet_ms", record.quiet_ms, i64::MAX)
}

// threat B7
pub(super) async fn time_does_not_run_backward_when_the_clock_is_set_back<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let clock = lab.clock()?;
    let before = lab.now().await?;
    clock.set_wall(before.plus_ms(-3_600_000));
    let record = lab.won(&draft(1)).await?;
    ensure(record.first_claimed_at >= before, "a claim is not in the past")?;
    ensure(lab.now().await? >= before, "a load is not in the past")?;
    let record = lab.done(&Write::mark_unknown(&draft(1))).await?;
    ensure(
        matches!(record.state, State::Unknown { since } if since >= before),
        "a write is not in the past",
    )
}

/// Every write is read back, by its writer and by another task, after a load that a cache may remember.
pub(super) async fn load_sees_every_write_that_was_answered<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let draft = draft(1);
    seen_by_all(&lab, &draft, None).await?;
    lab.won(&draft).await?;
    seen_by_all(&lab, &draft, Some(StateKind::Running)).await?;
    for (write, state) in [
        (Write::mark_unknown(&draft), Some(StateKind::Unknown)),
        (Write::vouch(&draft), Some(StateKind::Released)),
        (Write::settle(&draft), Some(StateKind::Completed)),
    ] {
        lab.swap(&write).await?;
        seen_by_all(&lab, &draft, state).await?;
    }
    let record = lab.record(draft.id).await?;
    lab.swap(&Write::delete(draft.id, &record)).await?;
    seen_by_all(&lab, &draft, None).await
}

async fn seen_by_all<S: Store>(lab: &Lab<S>, draft: &Draft, state: Option<StateKind>) -> Outcome {
    let id = draft.id;
    let kind = |record: Option<Record>| record.map(|record| record.state.kind());
    equal("the state", kind(lab.load(id).await?.record), state)?;
    let store = lab.store.clone();
    let other = tokio::spawn(async move { store.load(id).await }).await;
    match other {
        Ok(seen) => equal("the state, for another", kind(seen?.record), state),
        Err(panic) => failed(panic.to_string()),
    }
}

/// The record after a write, and the store's time before and after it.
async fn timed<S: Store>(
    lab: &Lab<S>,
    write: &Write,
) -> Result<(StoreTime, Record, StoreTime), Stop> {
    let earliest = lab.now().await?;
    let record = lab.done(write).await?;
    Ok((earliest, record, lab.now().await?))
}
