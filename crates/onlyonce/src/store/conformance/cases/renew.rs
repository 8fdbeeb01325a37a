//! Renewing leases.

use crate::record::{Record, State, StateKind};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, between, ensure, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{BRIEF, LEASE, Write, draft, rival};
use crate::store::{Beat, Draft};

pub(super) async fn a_renewal_extends_the_lease<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let claimed = lab.won(&draft(1)).await?;
    lab.pass(BRIEF).await;
    let before = lab.now().await?;
    equal("the beat", lab.renew(&[&draft(1)]).await?, vec![Beat::Kept])?;
    let seen = lab.load(draft(1).id).await?;
    let Some(renewed) = seen.record else {
        return ensure(false, "the record is there");
    };
    let State::Running { lease_until } = renewed.state else {
        return ensure(false, "the record is running");
    };
    let expected =
        Record { count: renewed.count, state: State::Running { lease_until }, ..claimed };
    equal("the record", renewed, expected)?;
    let (earliest, latest) = (before.plus(LEASE), seen.now.plus(LEASE));
    between("lease_until", earliest, lease_until, latest)
}

/// The reaper tells a living owner from a dead one by it.
pub(super) async fn a_renewal_changes_the_revision<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let mut last = lab.won(&draft(1)).await?;
    for _ in 0..3 {
        equal("the beat", lab.renew(&[&draft(1)]).await?, vec![Beat::Kept])?;
        let renewed = lab.record(draft(1).id).await?;
        ensure(renewed.revision() != last.revision(), "the revision is new")?;
        last = renewed;
    }
    Ok(())
}

// R51, threat B2
pub(super) async fn a_renewal_by_another_token_is_lost<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let claimed = lab.won(&draft(1)).await?;
    let beats = lab.renew(&[&rival(&draft(1), 2)]).await?;
    equal("the beat", beats, vec![Beat::Lost])?;
    lab.unchanged(draft(1).id, &claimed).await
}

// threat B2
pub(super) async fn a_renewal_of_what_does_not_run_is_lost<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for state in [StateKind::Unknown, StateKind::Released, StateKind::Completed] {
        let draft = draft(state as u8 + 1);
        let there = lab.put(&draft, state).await?;
        equal("the beat", lab.renew(&[&draft]).await?, vec![Beat::Lost])?;
        lab.unchanged(draft.id, &there).await?;
    }
    let absent = draft(9);
    equal("the beat", lab.renew(&[&absent]).await?, vec![Beat::Lost])?;
    lab.absent(absent.id).await
}

pub(super) async fn beats_come_in_the_order_of_their_entries<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    equal("the beats of nothing", lab.renew(&[]).await?, vec![])?;
    let drafts: Vec<Draft> = (1..=7).rev().map(draft).collect();
    for draft in &drafts {
        lab.won(draft).await?;
    }
    lab.done(&Write::settle(&drafts[1])).await?;
    lab.gone(&Write::release(&drafts[4])).await?;
    let beats = lab.renew(&drafts.iter().collect::<Vec<_>>()).await?;
    let lost = |index| matches!(index, 1 | 4);
    let expected = (0..7).map(|index| if lost(index) { Beat::Lost } else { Beat::Kept });
    equal("the beats", beats, expected.collect())
}
