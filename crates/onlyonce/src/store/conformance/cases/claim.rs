//! Claiming.

use crate::record::{Record, State, StateKind};
use crate::scope::OperationId;
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, between, ensure, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{BRIEF, SOON_MS, brief, draft, rival};
use crate::store::{Draft, Store};

// R48, R50
pub(super) async fn a_claim_of_an_absent_id_inserts_it<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let draft = draft(1);
    let before = lab.now().await?;
    let seen = lab.claim(&draft).await?;
    ensure(seen.mine, "the claim is ours")?;
    let record = lab.record(draft.id).await?;
    equal("the record of the answer", seen.record.as_ref(), Some(&record))?;
    let claimed_at = record.first_claimed_at;
    between("first_claimed_at", before, claimed_at, seen.now)?;
    equal("the record", &record, &inserted(&draft, &record))?;
    let State::Running { lease_until } = record.state else {
        return ensure(false, "the record is running");
    };
    let lease_ms = draft.lease.as_ms();
    between("lease_until", before.plus_ms(lease_ms), lease_until, seen.now.plus_ms(lease_ms))
}

pub(super) async fn a_claim_leaves_other_ids_alone<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let first = lab.won(&draft(1)).await?;
    for (number, id) in (2..).zip(neighbours(draft(1).id)) {
        lab.absent(id).await?;
        lab.won(&Draft { id, ..draft(number) }).await?;
    }
    lab.unchanged(draft(1).id, &first).await
}

// R52
pub(super) async fn a_repeat_of_a_claim_is_mine<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let first = lab.won(&draft(1)).await?;
    lab.pass(BRIEF).await;
    let again = lab.won(&draft(1)).await?;
    equal("the record", again, first)
}

// R64
pub(super) async fn a_claim_of_a_running_record_returns_it<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let there = lab.put(&draft(1), StateKind::Running).await?;
    returns(&lab, &draft(1), there).await
}

// R64
pub(super) async fn a_claim_of_an_unknown_record_returns_it<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let there = lab.put(&draft(1), StateKind::Unknown).await?;
    returns(&lab, &draft(1), there).await
}

pub(super) async fn a_claim_of_a_released_record_returns_it<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let there = lab.put(&draft(1), StateKind::Released).await?;
    returns(&lab, &draft(1), there).await
}

pub(super) async fn a_claim_of_a_completed_record_returns_it<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let there = lab.put(&draft(1), StateKind::Completed).await?;
    returns(&lab, &draft(1), there).await
}

// R110
pub(super) async fn a_claim_of_an_expired_record_returns_it<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for state in StateKind::ALL {
        let draft = brief(state as u8 + 1);
        match lab.expired(&draft, state).await? {
            Some(there) => returns(&lab, &draft, there).await?,
            None => drop(lab.won(&rival(&draft, 99)).await?),
        }
    }
    Ok(())
}

pub(super) async fn a_claim_that_is_no_longer_running_is_not_mine<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for state in [StateKind::Unknown, StateKind::Released, StateKind::Completed] {
        let draft = draft(state as u8 + 1);
        let there = lab.put(&draft, state).await?;
        let seen = lab.claim(&draft).await?;
        ensure(!seen.mine, "a claim that does not run is not ours")?;
        equal("the record", seen.record, Some(there))?;
    }
    Ok(())
}

pub(super) async fn a_claim_after_its_not_after_inserts_nothing<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let not_after = lab.now().await?.plus_ms(-1);
    let late = Draft { not_after, ..draft(1) };
    let seen = lab.claim(&late).await?;
    ensure(!seen.mine, "a late claim is not ours")?;
    equal("the record of the answer", seen.record, None)?;
    lab.absent(late.id).await
}

pub(super) async fn a_claim_at_its_not_after_is_in_time<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.clock()?;
    let not_after = lab.now().await?;
    let draft = Draft { not_after, ..draft(1) };
    lab.won(&draft).await.map(drop)
}

// R52
pub(super) async fn a_repeat_after_its_not_after_is_mine<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let not_after = lab.now().await?.plus_ms(SOON_MS);
    let draft = Draft { not_after, ..draft(1) };
    let first = lab.won(&draft).await?;
    lab.pass_until(not_after).await?;
    let again = lab.won(&draft).await?;
    equal("the record", again, first)
}

/// Ids that differ from this one in a single bit: the first, the middle ones, the last.
fn neighbours(id: OperationId) -> impl Iterator<Item = OperationId> {
    let bits = u128::from_be_bytes(*id.as_bytes());
    [127, 64, 63, 0].into_iter().map(move |bit| {
        let neighbour = bits ^ (1 << bit);
        OperationId::from_bytes(neighbour.to_be_bytes())
    })
}

/// A claim by someone else sees the record as it is, and leaves it so.
async fn returns<S: Store>(lab: &Lab<S>, claimed: &Draft, there: Record) -> Outcome {
    let seen = lab.claim(&rival(claimed, 99)).await?;
    ensure(!seen.mine, "what someone else claimed is not ours")?;
    equal("the record of the answer", seen.record.as_ref(), Some(&there))?;
    lab.unchanged(claimed.id, &there).await
}

/// What `draft` inserts, with the times and the count that the store chose.
fn inserted(draft: &Draft, record: &Record) -> Record {
    Record {
        token: draft.token,
        count: record.count,
        attempt: 1,
        state: record.state.clone(),
        taken_from: None,
        key: draft.key.clone(),
        fingerprint: draft.fingerprint,
        principal: draft.principal,
        route: draft.route.clone(),
        target: draft.target.clone(),
        first_claimed_at: record.first_claimed_at,
        lease_ms: draft.lease.as_ms(),
        quiet_ms: draft.quiet_ms,
        ttl_ms: draft.ttl_ms,
    }
}
