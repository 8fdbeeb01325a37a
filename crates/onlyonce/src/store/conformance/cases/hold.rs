//! The held clock.

use crate::record::{StateKind, StateSet};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, ensure, equal, failed};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{Write, brief, draft, rival};
use crate::store::{Maintain, Scan, Swap, Swept};

pub(super) async fn nothing_is_swept_while_the_clock_is_held<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let left = lab.expired(&brief(1), StateKind::Completed).await?;
    lab.store.hold_clock(true).await?;
    let swept = lab.store.sweep(100).await?;
    equal("the number deleted", swept.deleted, 0)?;
    lab.unchanged(brief(1).id, &left).await
}

pub(super) async fn every_answer_says_that_the_clock_is_held<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    all_say(&lab, 1, false).await?;
    lab.store.hold_clock(true).await?;
    all_say(&lab, 2, true).await?;
    lab.store.hold_clock(true).await?;
    all_say(&lab, 3, true).await
}

pub(super) async fn writes_go_on_while_the_clock_is_held<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.store.hold_clock(true).await?;
    for (number, state) in (1..).zip(StateKind::ALL) {
        lab.put(&draft(number), state).await?;
    }
    lab.gone(&Write::release(&draft(1))).await
}

pub(super) async fn a_clock_that_is_trusted_again_is_not_held<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.store.hold_clock(true).await?;
    lab.expired(&brief(9), StateKind::Completed).await?;
    lab.store.hold_clock(false).await?;
    all_say(&lab, 1, false).await?;
    let swept = Swept { deleted: 1, more: false };
    equal("the sweep", lab.store.sweep(100).await?, swept)
}

/// A claim, a repeat of it, a load, a stale swap and a page.
async fn all_say<S: Maintain>(lab: &Lab<S>, number: u8, held: bool) -> Outcome {
    let draft = draft(number);
    let claims = [lab.claim(&draft).await?, lab.claim(&rival(&draft, 99)).await?];
    ensure(
        claims.iter().all(|seen| seen.clock_held == held),
        "a claim says whether the clock is held",
    )?;
    let loaded = lab.load(draft.id).await?;
    equal("clock_held of a load", loaded.clock_held, held)?;
    let Swap::Stale(seen) = lab.swap(&Write::settle(&rival(&draft, 99))).await? else {
        return failed("a settle by another token is done");
    };
    equal("clock_held of a stale swap", seen.clock_held, held)?;
    let query = Scan { states: StateSet::of(&StateKind::ALL), after: None, limit: 1 };
    let page = lab.store.scan(query).await?;
    equal("clock_held of a page", page.clock_held, held)
}
