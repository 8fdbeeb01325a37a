//! Many at once.

use crate::record::{State, StateKind};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, equal};
use crate::store::conformance::lab::{Lab, duel, swap};
use crate::store::conformance::writes::{BRIEF, Write, brief, draft, rival};
use crate::store::{Draft, Maintain, Store, Swap};

// R48, R55, threat B12
pub(super) async fn a_claim_is_won_by_one_of_many_racers<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for round in 0..factory.rounds() {
        let claimed = draft(wrapped(round));
        let claims = |racer| rival(&claimed, racer);
        let seen = lab
            .race(RACERS, |store, racer| {
                let draft = claims(racer);
                async move { store.claim(draft).await }
            })
            .await?;
        let mine = seen.iter().filter(|seen| seen.mine).count();
        equal("the number of winners", mine, 1)?;
        let there = Some(lab.record(claimed.id).await?);
        let alike = seen.iter().all(|seen| seen.record == there);
        ensure(alike, "every racer sees the record of the winner")?;
        remove(&lab, &claimed).await?;
    }
    Ok(())
}

// R52
pub(super) async fn copies_of_one_claim_that_race_are_all_mine<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for round in 0..factory.rounds() {
        let claimed = draft(wrapped(round));
        let seen = lab
            .race(RACERS, |store, _| {
                let draft = claimed.clone();
                async move { store.claim(draft).await }
            })
            .await?;
        ensure(seen.iter().all(|seen| seen.mine), "every copy is ours")?;
        let there = Some(lab.record(claimed.id).await?);
        let alike = seen.iter().all(|seen| seen.record == there);
        ensure(alike, "every copy sees the one record")?;
        remove(&lab, &claimed).await?;
    }
    Ok(())
}

// threats B15, B12
pub(super) async fn a_record_is_taken_by_one_of_many_racers<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for (round, state) in (0..factory.rounds()).zip(left_behind()) {
        let claimed = rival(&draft(wrapped(round)), 200);
        let left = lab.put(&claimed, state).await?;
        let swaps = lab
            .race(RACERS, |store, racer| {
                let take = Write::take(&rival(&claimed, racer), &left);
                async move { swap(&*store, &take).await }
            })
            .await?;
        let done = swaps.iter().filter(|swap| is_done(swap)).count();
        equal("the number of winners", done, 1)?;
        remove(&lab, &claimed).await?;
    }
    Ok(())
}

// R98, threat D5
pub(super) async fn a_settle_or_a_take_wins_and_not_both<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for round in 0..factory.rounds() {
        let owner = draft(wrapped(round));
        let unknown = lab.put(&owner, StateKind::Unknown).await?;
        let (one, two) = (lab.store.clone(), lab.store.clone());
        let settle = Write::settle(&owner);
        let take = Write::take(&rival(&owner, 200), &unknown);
        let (settled, taken) = duel(round, async move { swap(&*one, &settle).await }, async move {
            swap(&*two, &take).await
        })
        .await?;
        ensure(is_done(&settled) != is_done(&taken), "one of the two wins")?;
        let state = lab.record(owner.id).await?.state.kind();
        let is_completed = state == StateKind::Completed;
        equal("completed", is_completed, is_done(&settled))?;
        remove(&lab, &owner).await?;
    }
    Ok(())
}

pub(super) async fn a_settle_that_races_the_reaper_is_kept<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for round in 0..factory.rounds() {
        let owner = draft(wrapped(round));
        let running = lab.won(&owner).await?;
        let (one, two) = (lab.store.clone(), lab.store.clone());
        let (settle, reap) = (Write::settle(&owner), Write::reap(owner.id, &running));
        let (settled, _) = duel(round, async move { swap(&*one, &settle).await }, async move {
            swap(&*two, &reap).await
        })
        .await?;
        ensure(is_done(&settled), "the settle is done")?;
        let state = lab.record(owner.id).await?.state;
        let is_completed = matches!(state, State::Completed { .. });
        ensure(is_completed, "the record is completed")?;
        remove(&lab, &owner).await?;
    }
    Ok(())
}

// threat I6
pub(super) async fn a_taken_record_survives_the_sweep_that_races_it<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.keeps_expired()?;
    for round in 0..factory.rounds() {
        let owner = brief(wrapped(round));
        let left = lab.put(&owner, StateKind::Completed).await?;
        lab.pass(BRIEF).await;
        let (one, two) = (lab.store.clone(), lab.store.clone());
        let (take, now) = (Write::take(&rival(&owner, 200), &left), lab.now().await?);
        let (_, taken) = duel(round, async move { one.sweep(now, 100).await }, async move {
            swap(&*two, &take).await
        })
        .await?;
        let there = lab.load(owner.id).await?.record.is_some();
        equal("there", there, is_done(&taken))?;
        if there {
            remove(&lab, &owner).await?;
        }
    }
    Ok(())
}

// R53, threat D4
pub(super) async fn a_claim_that_races_a_sweep_sees_a_record<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for round in 0..factory.rounds() {
        let owner = brief(wrapped(round));
        lab.expired(&owner, StateKind::Completed).await?;
        let (one, two) = (lab.store.clone(), lab.store.clone());
        let (claim, now) = (rival(&owner, 200), lab.now().await?);
        let (_, seen) =
            duel(
                round,
                async move { one.sweep(now, 100).await },
                async move { two.claim(claim).await },
            )
            .await?;
        ensure(seen.record.is_some(), "a claim returns a record")?;
        let there = lab.load(owner.id).await?.record;
        let is_ours = there.is_some_and(|record| record.token == rival(&owner, 200).token);
        equal("a claim that is ours is there", is_ours, seen.mine)?;
        lab.pass(BRIEF).await;
        lab.sweep(100).await?;
        if is_ours {
            remove(&lab, &owner).await?;
        }
    }
    Ok(())
}

pub(super) async fn copies_of_one_settle_that_race_are_all_done<F: Factory>(
    factory: &F,
) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for round in 0..factory.rounds() {
        let owner = draft(wrapped(round));
        lab.won(&owner).await?;
        let settle = Write::settle(&owner);
        let swaps = lab
            .race(RACERS, |store, _| {
                let settle = settle.clone();
                async move { swap(&*store, &settle).await }
            })
            .await?;
        let revision = lab.record(owner.id).await?.revision();
        let alike = swaps.iter().all(|swap| *swap == Swap::Done(revision));
        ensure(alike, "every copy is done, by one write")?;
        remove(&lab, &owner).await?;
    }
    Ok(())
}

async fn remove<S: Store>(lab: &Lab<S>, draft: &Draft) -> Outcome {
    let record = lab.record(draft.id).await?;
    lab.gone(&Write::delete(draft.id, &record)).await
}

/// What a taker may find, over and over.
fn left_behind() -> impl Iterator<Item = StateKind> {
    [StateKind::Unknown, StateKind::Released, StateKind::Completed].into_iter().cycle()
}

const fn is_done(swap: &Swap) -> bool {
    matches!(swap, Swap::Done(_))
}

/// The operation of a round; a hundred of them, used again.
fn wrapped(round: usize) -> u8 {
    (round % 100) as u8 + 1
}

const RACERS: u8 = 64;
