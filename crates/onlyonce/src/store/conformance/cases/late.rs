//! Copies of a call that arrive after the world has moved on.

use crate::record::StateKind;
use crate::store::conformance::check::{Outcome, ensure, equal, failed};
use crate::store::conformance::lab::{Lab, renew, swap};
use crate::store::conformance::writes::{SOON_MS, Write, draft, rival};
use crate::store::conformance::{Factory, Faulty, Mishap, Reply};
use crate::store::{Beat, Draft, Store, Swap};

// R53
pub(super) async fn a_late_claim_after_release_and_not_after_inserts_nothing<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    let not_after = lab.now().await?.plus_ms(SOON_MS);
    let draft = Draft { not_after, ..draft(1) };
    lab.store.plan(Mishap::Echo);
    lab.won(&draft).await?;
    lab.gone(&Write::release(&draft)).await?;
    lab.pass_until(not_after).await?;
    late_claim(&lab).await?;
    lab.absent(draft.id).await
}

// R52
pub(super) async fn a_late_claim_after_the_settle_changes_nothing<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    lab.store.plan(Mishap::Echo);
    lab.won(&draft(1)).await?;
    let settled = lab.done(&Write::settle(&draft(1))).await?;
    late_claim(&lab).await?;
    lab.unchanged(draft(1).id, &settled).await
}

// R98, threat D5
pub(super) async fn a_late_settle_after_a_takeover_is_stale<F: Factory>(factory: &F) -> Outcome {
    late_after_takeover(factory, &Write::settle(&draft(1))).await
}

// threat B2
pub(super) async fn a_late_release_after_a_takeover_is_stale<F: Factory>(factory: &F) -> Outcome {
    late_after_takeover(factory, &Write::release(&draft(1))).await?;
    late_after_takeover(factory, &Write::vouch(&draft(1))).await
}

// threat B2
pub(super) async fn a_late_release_after_the_settle_is_stale<F: Factory>(factory: &F) -> Outcome {
    late_after_settle(factory, &Write::release(&draft(1))).await
}

pub(super) async fn a_late_unknown_mark_after_the_settle_is_stale<F: Factory>(
    factory: &F,
) -> Outcome {
    late_after_settle(factory, &Write::mark_unknown(&draft(1))).await
}

// threat B2
pub(super) async fn a_late_renewal_after_a_takeover_is_lost<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    let running = lab.won(&draft(1)).await?;
    lab.store.plan(Mishap::Late);
    let held = [(draft(1).id, draft(1).token)];
    let unanswered = renew(&*lab.store, &held).await;
    ensure(unanswered.is_err(), "the renewal gave no answer")?;
    let unknown = lab.done(&Write::reap(draft(1).id, &running)).await?;
    let taken = lab.done(&Write::take(&rival(&draft(1), 2), &unknown)).await?;
    match lab.store.deliver().await.transpose()? {
        Some(Reply::Renew(beats)) => equal("the beat", beats, vec![Beat::Lost])?,
        reply => return failed(format!("no renewal was held back: {reply:?}")),
    }
    lab.unchanged(draft(1).id, &taken).await
}

// threat B12
pub(super) async fn a_late_take_after_anothers_take_is_stale<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    let released = lab.put(&draft(1), StateKind::Released).await?;
    hold_back(&lab, &Write::take(&rival(&draft(1), 2), &released)).await?;
    lab.done(&Write::take(&rival(&draft(1), 3), &released)).await?;
    late_swap_is_stale(&lab, &draft(1)).await
}

/// A copy of a take that was done, and given back since, does not take again.
pub(super) async fn a_late_take_after_its_own_return_is_stale<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    let second = rival(&draft(1), 2);
    let released = lab.put(&draft(1), StateKind::Released).await?;
    lab.store.plan(Mishap::Echo);
    lab.done(&Write::take(&second, &released)).await?;
    lab.done(&Write::vouch(&second)).await?;
    late_swap_is_stale(&lab, &draft(1)).await
}

pub(super) async fn a_late_reap_after_a_renewal_is_stale<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    let running = lab.won(&draft(1)).await?;
    hold_back(&lab, &Write::reap(draft(1).id, &running)).await?;
    lab.renew(&[&draft(1)]).await?;
    late_swap_is_stale(&lab, &draft(1)).await
}

/// The owner's write is under way while the record is reaped, and taken by someone else.
async fn late_after_takeover<F: Factory>(factory: &F, write: &Write) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    let running = lab.won(&draft(1)).await?;
    hold_back(&lab, write).await?;
    let unknown = lab.done(&Write::reap(draft(1).id, &running)).await?;
    let released = lab.done(&Write::free(draft(1).id, &unknown)).await?;
    lab.done(&Write::take(&rival(&draft(1), 2), &released)).await?;
    late_swap_is_stale(&lab, &draft(1)).await
}

/// The owner's write is under way while its settle overtakes it.
async fn late_after_settle<F: Factory>(factory: &F, write: &Write) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    lab.won(&draft(1)).await?;
    hold_back(&lab, write).await?;
    lab.done(&Write::settle(&draft(1))).await?;
    late_swap_is_stale(&lab, &draft(1)).await
}

async fn hold_back<S: Store>(lab: &Lab<Faulty<S>>, write: &Write) -> Outcome {
    lab.store.plan(Mishap::Late);
    let unanswered = swap(&*lab.store, write).await;
    ensure(unanswered.is_err(), "the write gave no answer")
}

async fn late_claim<S: Store>(lab: &Lab<Faulty<S>>) -> Outcome {
    match lab.store.deliver().await.transpose()? {
        Some(Reply::Claim(seen)) => ensure(!seen.mine, "a late claim is not ours"),
        reply => failed(format!("no claim was held back: {reply:?}")),
    }
}

async fn late_swap_is_stale<S: Store>(lab: &Lab<Faulty<S>>, draft: &Draft) -> Outcome {
    let before = lab.record(draft.id).await?;
    match lab.store.deliver().await.transpose()? {
        Some(Reply::Swap(Swap::Stale(seen))) => {
            equal("the record of the answer", seen.record, Some(before.clone()))?;
        }
        reply => return failed(format!("the late write is not stale: {reply:?}")),
    }
    lab.unchanged(draft.id, &before).await
}
