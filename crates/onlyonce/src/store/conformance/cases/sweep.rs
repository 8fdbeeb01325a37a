//! Sweeping.

use crate::clock::StoreTime;
use crate::record::StateKind;
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, Stop, ensure, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{BRIEF, SOON_MS, Write, brief, draft, rival};
use crate::store::{Draft, Maintain, Swept};

// R110
pub(super) async fn an_expired_record_is_there_until_it_is_swept<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.keeps_expired()?;
    for state in [StateKind::Released, StateKind::Completed] {
        let draft = brief(state as u8 + 1);
        let left = lab.expired(&draft, state).await?;
        let seen = lab.load(draft.id).await?;
        let is_over = left.as_ref().is_some_and(|left| left.is_expired(seen.now));
        ensure(is_over, "its time to live is over")?;
        equal("the record", seen.record, left)?;
    }
    Ok(())
}

pub(super) async fn a_sweep_deletes_what_has_expired<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let completed = lab.expired(&brief(1), StateKind::Completed).await?;
    let released = lab.expired(&brief(2), StateKind::Released).await?;
    let left = [completed, released].into_iter().flatten().count();
    equal("the sweep", lab.sweep(100).await?, all(left))?;
    lab.absent(brief(1).id).await?;
    lab.absent(brief(2).id).await?;
    lab.won(&rival(&brief(1), 3)).await.map(drop)
}

pub(super) async fn a_sweep_spares_what_has_not_expired<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let completed = lab.put(&draft(1), StateKind::Completed).await?;
    let released = lab.put(&draft(2), StateKind::Released).await?;
    lab.pass(BRIEF).await;
    equal("the sweep", lab.sweep(100).await?, all(0))?;
    lab.unchanged(draft(1).id, &completed).await?;
    lab.unchanged(draft(2).id, &released).await
}

// threats B5, B6
pub(super) async fn a_sweep_goes_by_the_moment_it_is_given<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.keeps_expired()?;
    let kept = lab.put(&brief(1), StateKind::Completed).await?;
    lab.pass(BRIEF).await;
    let soon = Draft { ttl_ms: SOON_MS, ..draft(2) };
    let later = lab.put(&soon, StateKind::Completed).await?;
    let (Some(kept_until), Some(later_until)) = (kept.expires_at(), later.expires_at()) else {
        return ensure(false, "both are completed");
    };
    let early = lab.store.sweep(kept_until.plus_ms(-1), 100).await?;
    equal("a sweep until before it has expired", early, all(0))?;
    lab.unchanged(brief(1).id, &kept).await?;
    equal("a sweep until it has expired", lab.store.sweep(kept_until, 100).await?, all(1))?;
    equal("a sweep of the future", lab.store.sweep(later_until, 100).await?, all(1))?;
    // Until then a copy in front of the store may still answer.
    lab.pass_until(later_until).await?;
    lab.absent(soon.id).await
}

// R111, R112, threat I6
pub(super) async fn a_sweep_spares_running_and_unknown_records<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let running = lab.put(&brief(1), StateKind::Running).await?;
    let unknown = lab.put(&brief(2), StateKind::Unknown).await?;
    let completed = lab.expired(&brief(3), StateKind::Completed).await?;
    equal("the sweep", lab.sweep(100).await?, all(completed.into_iter().count()))?;
    lab.unchanged(brief(1).id, &running).await?;
    lab.unchanged(brief(2).id, &unknown).await
}

/// The new attempt has no time to live, whatever became of the record that it has taken.
// threat I6
pub(super) async fn a_record_that_was_taken_does_not_expire_with_what_it_was<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for state in [StateKind::Released, StateKind::Completed] {
        let draft = Draft { ttl_ms: SOON_MS, ..draft(state as u8 + 1) };
        let left = lab.put(&draft, state).await?;
        let second = rival(&draft, 99);
        let taken = lab.done(&Write::take(&second, &left)).await?;
        lab.pass_until(left.expires_at().unwrap_or(StoreTime::MAX)).await?;
        lab.sweep(100).await?;
        lab.unchanged(draft.id, &taken).await?;
        let unknown = lab.done(&Write::mark_unknown(&second)).await?;
        lab.sweep(100).await?;
        lab.unchanged(draft.id, &unknown).await?;
    }
    Ok(())
}

// R111; threat I7
pub(super) async fn a_sweep_deletes_no_more_than_its_limit<F: Factory>(factory: &F) -> Outcome {
    let lab = expired_records(factory).await?;
    let swept = lab.sweep(2).await?;
    equal("the number deleted", swept.deleted, 2)?;
    equal("the number left", left(&lab).await?, 3)
}

// R111
pub(super) async fn a_sweep_says_whether_more_had_expired<F: Factory>(factory: &F) -> Outcome {
    let lab = expired_records(factory).await?;
    for (limit, deleted, more) in [(2, 2, true), (2, 2, true), (1, 1, false), (1, 0, false)] {
        let swept = lab.sweep(limit).await?;
        equal("the sweep", swept, Swept { deleted, more })?;
    }
    equal("the number left", left(&lab).await?, 0)
}

/// A store with five expired records; skips the case where they would be gone.
async fn expired_records<F: Factory>(factory: &F) -> Result<Lab<F::Store>, Stop> {
    let lab = Lab::fresh(factory).await;
    lab.keeps_expired()?;
    for number in 1..=5 {
        lab.put(&brief(number), StateKind::Completed).await?;
    }
    lab.pass(BRIEF).await;
    Ok(lab)
}

async fn left<S: Maintain>(lab: &Lab<S>) -> Result<usize, Stop> {
    let mut left = 0;
    for number in 1..=5 {
        left += usize::from(lab.load(brief(number).id).await?.record.is_some());
    }
    Ok(left)
}

const fn all(deleted: usize) -> Swept {
    let more = false;
    Swept { deleted, more }
}
