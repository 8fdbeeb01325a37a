//! One key, for two things or from two callers.

use super::Seen;
use crate::caller::Ask;
use crate::lab::Lab;
use crate::upstream::QUICK;

/// The bodies begin alike.
pub(super) async fn other_body(lab: &Lab) -> Seen {
    let ask = Ask::post(QUICK, "other-body");
    let first = lab.send(&ask).await?;
    first.must_be(201)?;
    let other = ask.clone().with_body("{\"currency\":\"usd\",\"amount\":2}");
    lab.send(&other).await?.must_be(422)?;
    lab.send(&ask).await?.must_replay(&first)?;
    lab.must_have_executed(1)
}

pub(super) async fn two_callers(lab: &Lab) -> Seen {
    let ask = Ask::post(QUICK, "two-callers");
    let ann = lab.send(&ask).await?;
    let bob = lab.send(&ask.clone().by("bob")).await?;
    ann.must_be(201)?;
    bob.must_be(201)?;
    if bob.is_replay() || bob.body == ann.body {
        return Err("one caller got the answer of another".to_owned());
    }
    lab.send(&ask).await?.must_replay(&ann)?;
    lab.must_have_executed(2)
}

/// Which of them counts is anyone's guess, so that none does.
pub(super) async fn two_keys(lab: &Lab) -> Seen {
    let ask = Ask::post(QUICK, "one").with_line("Idempotency-Key: two");
    lab.send(&ask).await?.must_be(400)?;
    lab.must_have_executed(0)
}

/// Strangers with an empty credential are not one caller, where callers must have one.
pub(super) async fn empty_credential(lab: &Lab) -> Seen {
    lab.send(&Ask::post(QUICK, "empty").by("")).await?.must_be(401)?;
    lab.must_have_executed(0)
}

/// Two operations whose paths and keys read the same when they are joined.
pub(super) async fn parts_that_read_alike(lab: &Lab) -> Seen {
    lab.send(&Ask::post("/quick/a", "b:c")).await?.must_be(201)?;
    let other = lab.send(&Ask::post("/quick/a:b", "c")).await?;
    other.must_be(201)?;
    if other.is_replay() {
        return Err("one operation got the answer of another".to_owned());
    }
    lab.must_have_executed(2)
}
