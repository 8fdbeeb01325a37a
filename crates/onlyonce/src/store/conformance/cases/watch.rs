//! Waking those who wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::timeout;

use crate::record::{State, StateKind};
use crate::scope::OperationId;
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, failed};
use crate::store::conformance::lab::{Lab, duel, swap};
use crate::store::conformance::writes::{Write, draft, rival, token};
use crate::store::{Fault, Watch};

pub(super) async fn a_settle_wakes<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    wakes(&lab, &Write::settle(&draft(1))).await
}

pub(super) async fn a_release_wakes<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    wakes(&lab, &Write::release(&draft(1))).await?;
    lab.won(&draft(2)).await?;
    wakes(&lab, &Write::vouch(&draft(2))).await
}

pub(super) async fn a_release_of_an_unknown_wakes<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    wakes(&lab, &Write::free(draft(1).id, &unknown)).await
}

pub(super) async fn an_unknown_mark_wakes<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    wakes(&lab, &Write::mark_unknown(&draft(1))).await?;
    let running = lab.won(&draft(2)).await?;
    wakes(&lab, &Write::reap(draft(2).id, &running)).await
}

pub(super) async fn a_decree_wakes<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    let decree = Write::decree(draft(1).id, &unknown, token(2));
    wakes(&lab, &decree).await
}

pub(super) async fn every_watcher_wakes<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    let watchers: Vec<_> =
        (0..WATCHERS).map(|_| tokio::spawn(lab.store.changed(draft(1).id))).collect();
    yield_now().await;
    lab.swap(&Write::settle(&draft(1))).await?;
    for watcher in watchers {
        let woken = timeout(WAKE_WAIT_MAX, watcher).await;
        ensure(matches!(woken, Ok(Ok(()))), "each of many watchers wakes")?;
    }
    Ok(())
}

pub(super) async fn a_watcher_that_gives_up_does_not_silence_others<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    let gives_up = lab.store.changed(draft(1).id);
    let stays = lab.store.changed(draft(1).id);
    let polled = timeout(Duration::ZERO, gives_up).await;
    drop(polled);
    lab.swap(&Write::settle(&draft(1))).await?;
    woken(stays).await
}

/// The settle comes before the subscription, between it and the load, or after both.
pub(super) async fn who_subscribes_then_loads_misses_nothing<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for round in 0..factory.rounds() {
        let draft = rival(&draft(1), 1);
        lab.won(&draft).await?;
        let waiter = until_completed(lab.store.clone(), draft.id);
        let (store, write) = (lab.store.clone(), Write::settle(&draft));
        let settle = async move { swap(&*store, &write).await };
        let (completed, _) = duel(round, waiter, settle).await?;
        ensure(completed, "the waiter sees the settle")?;
        let record = lab.record(draft.id).await?;
        lab.gone(&Write::delete(draft.id, &record)).await?;
    }
    Ok(())
}

/// What a waiter does: subscribe, load, see to something else, sleep until woken, again.
async fn until_completed<S: Watch>(store: Arc<S>, id: OperationId) -> Result<bool, Fault> {
    loop {
        let changed = store.changed(id);
        let seen = store.load(id).await?;
        if matches!(seen.record, Some(record) if matches!(record.state, State::Completed { .. })) {
            return Ok(true);
        }
        yield_now().await;
        if timeout(WAKE_WAIT_MAX, changed).await.is_err() {
            return Ok(false);
        }
    }
}

/// Subscribed by the call, and polled only after the write.
async fn wakes<S: Watch>(lab: &Lab<S>, write: &Write) -> Outcome {
    let changed = lab.store.changed(write.id);
    lab.swap(write).await?;
    woken(changed).await
}

async fn woken(changed: impl Future<Output = ()>) -> Outcome {
    match timeout(WAKE_WAIT_MAX, changed).await {
        Ok(()) => Ok(()),
        Err(_) => failed("nobody was woken"),
    }
}

/// How long a wake-up may take.
const WAKE_WAIT_MAX: Duration = Duration::from_secs(5);
const WATCHERS: usize = 64;
