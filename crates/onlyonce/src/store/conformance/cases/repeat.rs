//! A write that was already done is done, whoever asks again, and changes nothing further.

use std::sync::Arc;

use crate::record::{Record, Response, SettledBy, StateKind};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, Stop, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{
    BRIEF, SETTLES_FROM, Write, draft, response, rival, token,
};
use crate::store::{Next, Store};

pub(super) async fn a_repeated_settle_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    twice(&lab, &Write::settle(&draft(1))).await.map(drop)
}

pub(super) async fn a_settle_with_other_content_is_stale<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let draft = draft(1);
    lab.put(&draft, StateKind::Completed).await?;
    let first = response("first");
    let mut tagged = Response::clone(&first);
    let link = http::HeaderValue::from_static("</2>");
    tagged.headers.append("link", link);
    for other in [Arc::new(tagged), response("First"), response("")] {
        lab.stale(&Write::settle_with(&draft, other)).await?;
    }
    let to = Next::Completed { settled_by: SettledBy::Policy, response: first, token: None };
    lab.stale(&Write::by_owner(&draft, &SETTLES_FROM, to)).await
}

pub(super) async fn a_repeated_release_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    lab.gone(&Write::release(&draft(1))).await?;
    lab.gone(&Write::release(&draft(1))).await
}

pub(super) async fn a_repeated_unknown_mark_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    lab.won(&draft(1)).await?;
    twice(&lab, &Write::mark_unknown(&draft(1))).await.map(drop)
}

pub(super) async fn a_repeated_return_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let earlier = lab.now().await?.plus_ms(-5_000);
    let later = earlier.plus_ms(86_400_000);
    for (number, write) in [
        (1, Write::return_to_unknown(&draft(1), earlier)),
        (2, Write::return_to_released(&draft(2), later)),
        (3, Write::vouch(&draft(3))),
    ] {
        lab.won(&draft(number)).await?;
        twice(&lab, &write).await?;
    }
    Ok(())
}

pub(super) async fn a_return_to_another_moment_is_stale<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let moment = lab.now().await?.plus_ms(3_600_000);
    let (unknown, released) = (draft(1), draft(2));
    lab.put(&unknown, StateKind::Unknown).await?;
    lab.put(&released, StateKind::Released).await?;
    let from = [StateKind::Running];
    let since = Next::Unknown { since: Some(moment) };
    let until = Next::Released { expires_at: Some(moment) };
    lab.stale(&Write::by_owner(&unknown, &from, since)).await?;
    lab.stale(&Write::by_owner(&released, &from, until)).await
}

pub(super) async fn a_repeated_reap_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let running = lab.won(&draft(1)).await?;
    twice(&lab, &Write::reap(draft(1).id, &running)).await.map(drop)
}

pub(super) async fn a_repeated_release_of_an_unknown_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    twice(&lab, &Write::free(draft(1).id, &unknown)).await.map(drop)
}

pub(super) async fn a_repeated_take_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    for state in [StateKind::Unknown, StateKind::Released, StateKind::Completed] {
        let draft = draft(state as u8 + 1);
        let left = lab.put(&draft, state).await?;
        twice(&lab, &Write::take(&rival(&draft, 99), &left)).await?;
    }
    Ok(())
}

pub(super) async fn a_repeated_decree_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let unknown = lab.put(&draft(1), StateKind::Unknown).await?;
    let decree = Write::decree(draft(1).id, &unknown, token(2));
    twice(&lab, &decree).await.map(drop)
}

pub(super) async fn a_repeated_replacement_is_done<F: Factory>(factory: &F) -> Outcome {
    let lab = Lab::fresh(factory).await;
    let completed = lab.put(&draft(1), StateKind::Completed).await?;
    let erasure = Write::erase(draft(1).id, &completed, token(2));
    twice(&lab, &erasure).await.map(drop)
}

/// Time passes between the two, so that a second write would show.
async fn twice<S: Store>(lab: &Lab<S>, write: &Write) -> Result<Record, Stop> {
    let first = lab.done(write).await?;
    lab.pass(BRIEF).await;
    let second = lab.done(write).await?;
    equal("the record", &second, &first)?;
    Ok(first)
}
