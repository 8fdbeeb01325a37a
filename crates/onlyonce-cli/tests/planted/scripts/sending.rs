//! Requests that are doubled, and services that execute without an answer.

use super::Seen;
use crate::caller::Ask;
use crate::lab::{IN_PROGRESS, Lab, UNKNOWN};
use crate::upstream::{DEDUPS, DIES, GATED};

/// One of them is executed; the others are told to wait, and then get its answer.
pub(super) async fn sent_at_once(lab: &Lab) -> Seen {
    let ask = Ask::post(GATED, "at-once");
    let sent: Vec<_> = (0..DUPLICATES).map(|_| lab.send_apart(&ask)).collect();
    let are_answered = || sent.iter().filter(|sent| sent.is_finished()).count() == DUPLICATES - 1;
    let is_doubled = || lab.upstream.executions() > 1;
    lab.becomes("the refusals", || are_answered() || is_doubled()).await?;
    lab.upstream.let_pass(usize::MAX);
    let mut first = None;
    for sent in sent {
        let answer = sent.await.map_err(|error| error.to_string())??;
        match answer.code().as_deref() {
            Some(IN_PROGRESS) => {}
            _ if first.is_none() => first = Some(answer),
            _ => return Err(format!("two were answered, the second {:.80}", answer.body)),
        }
    }
    let first = first.ok_or("nobody was answered")?;
    first.must_be(201)?;
    lab.send(&ask).await?.must_replay(&first)?;
    lab.must_have_executed(1)
}

/// The outcome stays unknown, and is never sent again by itself.
pub(super) async fn service_dies(lab: &Lab) -> Seen {
    let ask = Ask::post(DIES, "dies");
    lab.send(&ask).await?.must_say(502, UNKNOWN)?;
    for _ in 0..2 {
        lab.send_to_the_end(&ask).await?.must_say(409, UNKNOWN)?;
    }
    lab.must_have_executed(1)
}

/// `in_flight = "wait"`: who has waited in vain leaves the record as it is.
pub(super) async fn waited_for(lab: &Lab) -> Seen {
    let ask = Ask::post(GATED, "waited-for");
    let first = lab.send_apart(&ask);
    lab.executed(1).await?;
    for _ in 0..2 {
        let waited = lab.send_apart(&ask);
        lab.becomes("the end of the wait", || {
            waited.is_finished() || lab.upstream.executions() > 1
        })
        .await?;
        lab.must_have_executed(1)?;
        let waited = waited.await.map_err(|error| error.to_string())??;
        waited.must_say(409, IN_PROGRESS)?;
    }
    lab.upstream.let_pass(usize::MAX);
    let first = first.await.map_err(|error| error.to_string())??;
    lab.send(&ask).await?.must_replay(&first)
}

/// `recovery = "redrive"`: the service knows the key again.
pub(super) async fn sent_again(lab: &Lab) -> Seen {
    let ask = Ask::post(DEDUPS, "sent-again");
    lab.send(&ask).await?.must_say(502, UNKNOWN)?;
    let _ = lab.send(&ask).await;
    lab.must_have_executed(1)?;
    lab.send(&ask).await?.must_be(201)
}

/// `recovery = "reconcile"`, with derived keys: the service is asked for the key that it was sent.
pub(super) async fn asked_later(lab: &Lab) -> Seen {
    let ask = Ask::post(DIES, "asked-later");
    lab.send(&ask).await?.must_say(502, UNKNOWN)?;
    let found = lab.send(&ask).await?;
    found.must_be(200)?;
    if !found.is_replay() {
        return Err("what was found is not the answer".to_owned());
    }
    lab.must_have_executed(1)
}

const DUPLICATES: usize = 8;
