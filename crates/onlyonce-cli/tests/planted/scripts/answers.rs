//! Retries of what was answered: the same answer, or none, and never another execution.

use super::Seen;
use crate::caller::Ask;
use crate::lab::{Lab, UNKNOWN};
use crate::upstream::{CUT, FAILS, LARGE, QUICK};

pub(super) async fn is_replayed(lab: &Lab) -> Seen {
    let ask = Ask::post(QUICK, "replayed");
    let first = lab.send(&ask).await?;
    first.must_be(201)?;
    lab.send(&ask).await?.must_replay(&first)?;
    lab.must_have_executed(1)
}

/// The service dies in the middle of its answer: half of it is nobody's answer.
pub(super) async fn is_cut(lab: &Lab) -> Seen {
    let ask = Ask::post(CUT, "cut");
    // Whatever the first caller gets of it.
    let _ = lab.send(&ask).await;
    lab.executed(1).await?;
    lab.send_to_the_end(&ask).await?.must_say(409, UNKNOWN)?;
    lab.must_have_executed(1)
}

/// The answer is too large to be kept: a retry is told so.
pub(super) async fn is_large(lab: &Lab) -> Seen {
    let ask = Ask::post(LARGE, "large");
    lab.send(&ask).await?.must_be(201)?;
    lab.send_to_the_end(&ask).await?.must_be(410)?;
    lab.must_have_executed(1)
}

/// The service executes and answers 500: that is its answer.
pub(super) async fn is_an_error(lab: &Lab) -> Seen {
    let ask = Ask::post(FAILS, "fails");
    let first = lab.send(&ask).await?;
    first.must_be(500)?;
    lab.send(&ask).await?.must_replay(&first)?;
    lab.must_have_executed(1)
}
