//! What a crash leaves. Skipped where the store is declared to forget.

use super::response::{same, with_everything};
use crate::record::{Record, State, StateKind};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{Write, brief, draft, rival};
use crate::store::{Draft, Maintain};

pub(super) async fn every_state_survives_a_crash<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let states = [StateKind::Unknown, StateKind::Released, StateKind::Completed];
    let mut left = Vec::new();
    for (number, state) in (1..).zip(states) {
        left.push((draft(number), lab.put(&draft(number), state).await?));
    }
    let lab = lab.crash(factory).await?;
    for (draft, record) in &left {
        lab.unchanged(draft.id, record).await?;
    }
    Ok(())
}

/// An embedded store may call it unknown when it opens: no other process can be its owner.
// R64
pub(super) async fn a_running_record_is_never_absent_after_a_crash<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let second = rival(&draft(2), 3);
    let first = lab.won(&draft(1)).await?;
    let unknown = lab.put(&draft(2), StateKind::Unknown).await?;
    let taken = lab.done(&Write::take(&second, &unknown)).await?;
    let lab = lab.crash(factory).await?;
    still_owned(&lab, &draft(1), &first).await?;
    still_owned(&lab, &draft(2), &taken).await
}

pub(super) async fn a_response_survives_a_crash_byte_for_byte<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let response = with_everything();
    lab.won(&draft(1)).await?;
    let write = Write::settle_with(&draft(1), response.clone());
    lab.done(&write).await?;
    let lab = lab.crash(factory).await?;
    let record = lab.record(draft(1).id).await?;
    same(record.response(), &response)
}

pub(super) async fn what_was_deleted_stays_deleted_after_a_crash<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    lab.gone(&Write::release(&draft(1))).await?;
    lab.expired(&brief(2), StateKind::Completed).await?;
    lab.sweep(100).await?;
    let lab = lab.crash(factory).await?;
    lab.absent(draft(1).id).await?;
    lab.absent(brief(2).id).await
}

// R51, R98
pub(super) async fn tokens_fence_after_a_crash_as_before<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let (first, second) = (draft(1), rival(&draft(1), 2));
    let unknown = lab.put(&first, StateKind::Unknown).await?;
    lab.done(&Write::take(&second, &unknown)).await?;
    let lab = lab.crash(factory).await?;
    lab.stale(&Write::settle(&first)).await?;
    lab.stale(&Write::take(&rival(&first, 3), &unknown)).await?;
    lab.done(&Write::settle(&second)).await.map(drop)
}

async fn still_owned<S: Maintain>(lab: &Lab<S>, draft: &Draft, before: &Record) -> Outcome {
    let record = lab.record(draft.id).await?;
    equal("the token", record.token, before.token)?;
    equal("the attempt", record.attempt, before.attempt)?;
    equal("taken_from", record.taken_from, before.taken_from)?;
    let is_running = matches!(record.state, State::Running { .. });
    let is_unknown = matches!(record.state, State::Unknown { .. });
    let may_be_unknown = lab.store.limits().embedded;
    ensure(
        is_running || (may_be_unknown && is_unknown),
        "it is running, or unknown in an embedded store",
    )
}
