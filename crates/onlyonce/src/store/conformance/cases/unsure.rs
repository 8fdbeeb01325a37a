//! Calls that gave no answer, repeated.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use crate::record::StateKind;
use crate::store::conformance::check::{Outcome, Stop, ensure, equal, failed};
use crate::store::conformance::lab::{Lab, swap};
use crate::store::conformance::writes::{Write, draft, rival, token};
use crate::store::conformance::{Factory, Faulty, Mishap};
use crate::store::{Beat, Fault, Store};

// R52
pub(super) async fn a_claim_whose_answer_was_lost_is_mine_when_repeated<F: Factory>(
    factory: &F,
) -> Outcome {
    claim_after(factory, Mishap::LostAfter).await
}

// R52
pub(super) async fn a_claim_that_was_lost_is_won_when_repeated<F: Factory>(factory: &F) -> Outcome {
    claim_after(factory, Mishap::LostBefore).await?;
    claim_after(factory, Mishap::NotDone).await
}

pub(super) async fn a_settle_whose_answer_was_lost_is_done_when_repeated<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    repeated(&lab, &Write::settle(&draft(1))).await
}

pub(super) async fn a_release_whose_answer_was_lost_is_done_when_repeated<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    lab.won(&draft(1)).await?;
    lost(&lab, Mishap::LostAfter, &Write::release(&draft(1))).await?;
    lab.gone(&Write::release(&draft(1))).await
}

pub(super) async fn an_unknown_mark_whose_answer_was_lost_is_done_when_repeated<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    repeated(&lab, &Write::mark_unknown(&draft(1))).await?;
    let running = lab.won(&draft(2)).await?;
    repeated(&lab, &Write::reap(draft(2).id, &running)).await
}

pub(super) async fn a_take_whose_answer_was_lost_is_done_when_repeated<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let released = lab.put(&draft(1), StateKind::Released).await?;
    repeated(&lab, &Write::take(&rival(&draft(1), 2), &released)).await
}

pub(super) async fn a_decree_whose_answer_was_lost_is_done_when_repeated<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    repeated(&lab, &Write::decree(draft(1).id, &unknown, token(2))).await
}

pub(super) async fn a_claim_that_arrives_twice_inserts_once<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    lab.store.plan(Mishap::Twice);
    let claimed = lab.won(&draft(1)).await?;
    lab.unchanged(draft(1).id, &claimed).await
}

pub(super) async fn a_settle_that_arrives_twice_writes_once<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    lab.won(&draft(1)).await?;
    lab.won(&draft(2)).await?;
    let once = lab.done(&Write::settle(&draft(1))).await?;
    lab.store.plan(Mishap::Twice);
    let twice = lab.done(&Write::settle(&draft(2))).await?;
    equal("the count", twice.count, once.count)
}

pub(super) async fn a_renewal_that_arrives_twice_is_kept<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    lab.won(&draft(1)).await?;
    lab.store.plan(Mishap::Twice);
    equal("the beat", lab.renew(&[&draft(1)]).await?, vec![Beat::Kept])
}

/// The store's own *unsure*: its future is polled once and dropped.
pub(super) async fn a_call_whose_future_was_dropped_is_resolved_by_repeating_it<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let draft = draft(1);
    poll_once(lab.store.claim(draft.clone())).await;
    let running = lab.won(&draft).await?;
    poll_once(swap(&*lab.store, &Write::reap(draft.id, &running))).await;
    lab.done(&Write::reap(draft.id, &running)).await?;
    poll_once(swap(&*lab.store, &Write::settle(&draft))).await;
    let settled = lab.done(&Write::settle(&draft)).await?;
    lab.unchanged(draft.id, &settled).await
}

async fn poll_once<T>(call: impl Future<Output = T>) {
    let mut call = pin!(call);
    poll_fn(|context| {
        let _ = call.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

async fn claim_after<F: Factory>(factory: &F, mishap: Mishap) -> Outcome {
    let lab = Lab::fresh(factory).await.faulty();
    lab.store.plan(mishap);
    let answer = lab.store.claim(draft(1)).await;
    ensure(answer.is_err(), "the first claim gave no answer")?;
    let claimed = lab.won(&draft(1)).await?;
    lab.unchanged(draft(1).id, &claimed).await
}

/// Done, unanswered, done again: and what the first left is what the second finds.
async fn repeated<S: Store>(lab: &Lab<S>, write: &Write) -> Outcome {
    let lab = lab.faulty();
    lost(&lab, Mishap::LostAfter, write).await?;
    let first = lab.record(write.id).await?;
    let second = lab.done(write).await?;
    equal("the record", second, first)
}

async fn lost<S: Store>(lab: &Lab<Faulty<S>>, mishap: Mishap, write: &Write) -> Result<(), Stop> {
    lab.store.plan(mishap);
    match swap(&*lab.store, write).await {
        Err(Fault::Unsure(_)) => Ok(()),
        answer => failed(format!("an answer that was to be lost: {answer:?}")),
    }
}
