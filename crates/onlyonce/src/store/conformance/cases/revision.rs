//! What anyone else writes: against the exact revision that was read.

use crate::record::{Record, StateKind};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{Write, draft, rival, token};
use crate::store::{Beat, Draft};

pub(super) async fn another_writes_what_it_read<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let draft = draft(1);
    let running = lab.won(&draft).await?;
    let unknown = lab.done(&Write::reap(draft.id, &running)).await?;
    equal("the token", unknown.token, draft.token)?;
    let released = lab.done(&Write::free(draft.id, &unknown)).await?;
    equal("the token", released.token, draft.token)?;
    let taken = lab.done(&Write::take(&rival(&draft, 2), &released)).await?;
    equal("the token", taken.token, token(2))?;
    let decree = Write::decree(draft.id, &taken, token(3));
    let completed = lab.done(&decree).await?;
    equal("the token", completed.token, token(3))?;
    lab.gone(&Write::delete(draft.id, &completed)).await
}

pub(super) async fn a_reap_of_a_changed_record_is_stale<F: Factory>(factory: &F) -> Outcome {
    stale_once_changed(factory, |draft, read| Write::reap(draft.id, read)).await
}

pub(super) async fn a_release_of_a_changed_record_is_stale<F: Factory>(factory: &F) -> Outcome {
    stale_once_changed(factory, |draft, read| Write::free(draft.id, read)).await
}

pub(super) async fn a_take_of_a_changed_record_is_stale<F: Factory>(factory: &F) -> Outcome {
    stale_once_changed(factory, |draft, read| Write::take(&rival(draft, 99), read)).await
}

pub(super) async fn a_decree_on_a_changed_record_is_stale<F: Factory>(factory: &F) -> Outcome {
    stale_once_changed(factory, |draft, read| Write::decree(draft.id, read, token(99))).await
}

pub(super) async fn a_deletion_of_a_changed_record_is_stale<F: Factory>(factory: &F) -> Outcome {
    stale_once_changed(factory, |draft, read| Write::delete(draft.id, read)).await
}

pub(super) async fn every_write_changes_the_revision<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let (draft, second) = (draft(1), rival(&draft(1), 2));
    let mut seen = vec![lab.won(&draft).await?];
    lab.renew(&[&draft]).await?;
    seen.push(lab.record(draft.id).await?);
    seen.push(lab.done(&Write::mark_unknown(&draft)).await?);
    seen.push(lab.done(&Write::free(draft.id, &seen[2])).await?);
    seen.push(lab.done(&Write::take(&second, &seen[3])).await?);
    seen.push(lab.done(&Write::vouch(&second)).await?);
    seen.push(lab.done(&Write::settle(&second)).await?);
    seen.push(lab.done(&Write::decree(draft.id, &seen[6], token(3))).await?);
    let revisions: std::collections::HashSet<_> = seen.iter().map(Record::revision).collect();
    equal("the number of revisions", revisions.len(), seen.len())
}

/// Read, deleted, made anew by someone else who has written as often, and then written with what was
/// read: the count is the same, the revision is not.
pub(super) async fn a_revision_does_not_come_back_when_a_record_is_deleted_and_made_anew<
    F: Factory,
>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let (first, second) = (draft(1), rival(&draft(1), 2));
    let read = lab.won(&first).await?;
    lab.gone(&Write::release(&first)).await?;
    let anew = lab.won(&second).await?;
    for write in [
        Write::reap(first.id, &read),
        Write::free(first.id, &read),
        Write::delete(first.id, &read),
        Write::decree(first.id, &read, token(98)),
        Write::take(&rival(&first, 99), &read),
    ] {
        lab.stale(&write).await?;
    }
    lab.unchanged(first.id, &anew).await
}

/// A write against what was read before a renewal, before a state change, and before a take.
async fn stale_once_changed<F: Factory>(
    factory: &F,
    write: impl Fn(&Draft, &Record) -> Write + Send,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let renewed = draft(1);
    let read = lab.won(&renewed).await?;
    equal("the beat", lab.renew(&[&renewed]).await?, vec![Beat::Kept])?;
    lab.stale(&write(&renewed, &read)).await?;

    let settled = draft(2);
    let read = lab.won(&settled).await?;
    lab.done(&Write::settle(&settled)).await?;
    lab.stale(&write(&settled, &read)).await?;

    let taken = draft(3);
    let read = lab.put(&taken, StateKind::Unknown).await?;
    let attempt = lab.done(&Write::take(&rival(&taken, 4), &read)).await?;
    ensure(attempt.attempt == 2, "the take is the second attempt")?;
    lab.stale(&write(&taken, &read)).await
}
