//! What became of an operation, what to check, and what may be done: in plain words, and from the record alone.

use onlyonce::StoredOperation;
use onlyonce::clock::StoreTime;
use onlyonce::code::Code;
use onlyonce::record::{Kept, NotKept, Record, Response, SettledBy, State, StateKind};
use serde_json::{Value, json};

use super::life::completed_at;
use super::shape::not_kept;
use crate::words::span;

/// What became of it.
pub(crate) fn sentence(operation: &StoredOperation) -> String {
    let StoredOperation { record, now, .. } = operation;
    match &record.state {
        State::Running { lease_until } => running(record, *lease_until, *now),
        State::Unknown { since } => format!(
            "Sent at {}, and no complete answer came back. It may have been executed{}. It has been waiting for an operator for {}.",
            clock(record.first_claimed_at),
            if record.attempt == 1 { ", at most once" } else { "" },
            span(now.since_ms(*since)),
        ),
        State::Released { .. } => format!(
            "Released: it counts as not executed. The next request with this key executes it, as attempt {}.",
            record.attempt.saturating_add(1),
        ),
        State::Completed { settled_by, response, .. } => {
            let at = clock(completed_at(operation).unwrap_or(*now));
            let outcome = completed(record, *settled_by, &at, response);
            format!("{outcome}{}", kept(response))
        }
    }
}

fn running(record: &Record, lease_until: StoreTime, now: StoreTime) -> String {
    let since = clock(record.first_claimed_at);
    let begun = match record.attempt {
        1 => format!("Running since {since}, attempt 1."),
        attempt => format!("First claimed at {since}; attempt {attempt} is running."),
    };
    match lease_until.since_ms(now) {
        left if left > 0 => {
            format!("{begun} The lease ends in {} unless the gateway renews it.", span(left))
        }
        over => format!(
            "{begun} The lease ended {} ago and was not renewed: the gateway that runs it may be dead. The operation will be marked unknown.",
            span(over.saturating_neg()),
        ),
    }
}

fn completed(record: &Record, by: SettledBy, at: &str, response: &Response) -> String {
    let status = response.status.as_u16();
    match (by, record.attempt) {
        (SettledBy::Owner, 1) => format!("Executed once, at {at}, with the answer {status}."),
        (SettledBy::Owner, attempt) => {
            format!("Executed by attempt {attempt}, at {at}, with the answer {status}.")
        }
        (SettledBy::Policy, _) => format!(
            "Closed by the route's policy (recovery or hold_max) at {at}, with the answer {status}. The outcome never became known: it may have been executed."
        ),
        (SettledBy::Reconcile, _) => format!(
            "The service was asked and said, at {at}, that it was executed, with the answer {status}."
        ),
        (SettledBy::Operator, _) => format!(
            "Settled by an operator at {at}, with the answer {status}. The service's own answer never came back."
        ),
    }
}

fn kept(response: &Response) -> String {
    match &response.body {
        Kept::Bytes { .. } => " Every retry gets this answer.".to_owned(),
        Kept::No(NotKept::Streamed) => {
            " The answer was a stream and was not kept: a retry gets 410, never a second execution."
                .to_owned()
        }
        Kept::No(NotKept::Location) => {
            " Status and Location were kept: a retry gets what is at the Location now, never a second execution."
                .to_owned()
        }
        Kept::Sealed(_) => kept(&response.without_body(NotKept::Unopened)),
        Kept::No(why) => format!(
            " The body was not kept ({}): a retry gets 410, never a second execution.",
            not_kept(*why)
        ),
    }
}

/// What to find out before an unknown operation is settled or released; nothing in any other state.
pub(crate) fn checks(operation: &StoredOperation) -> Vec<String> {
    let StoredOperation { record, .. } = operation;
    let State::Unknown { since } = record.state else { return Vec::new() };
    let (first, last) = (clock(record.first_claimed_at), clock(since));
    let time = match first == last {
        true => format!("at {first}"),
        false => format!("between {first} and {last}"),
    };
    let quiet = operation.releasable_at().map(clock).unwrap_or_default();
    let key = record.key.shown().escape_debug();
    vec![
        format!("What was sent: a request of the route {}, with the key \"{key}\", {time}.", record.route),
        "Look for it in the service behind the gateway: by this key if the service stores keys, otherwise by the content of the request and the time.".to_owned(),
        "If it was executed: settle it with the answer that the client should have received. Every retry gets that answer.".to_owned(),
        format!("If it failed, or never happened and must not happen any more under this key: settle it as failed. Every retry gets 502 {} and is told to use a new key.", Code::OperationFailed),
        format!("If it was not executed, and it is past {quiet}, so that the first attempt can no longer arrive: release it. The next retry executes it."),
        "If you cannot find out: leave it. Nothing is executed meanwhile.".to_owned(),
    ]
}

/// Each action: whether it is allowed now, what it promises, and why it is not allowed.
pub(crate) fn actions(operation: &StoredOperation) -> Value {
    let kind = operation.record.state.kind();
    let is_unknown = kind == StateKind::Unknown;
    let why_not = (!is_unknown).then(|| only_unknown(kind));
    let at = operation.releasable_at();
    let early = at.filter(|at| *at > operation.now);
    let why_not_yet = early
        .map(|at| format!("Its first attempt may still reach the service until {}.", clock(at)));
    let is_completed = kind == StateKind::Completed;
    json!({
        "settle": { "allowed": is_unknown, "promise": SETTLE, "why_not": why_not },
        "release": {
            "allowed": is_unknown && early.is_none(), "promise": RELEASE,
            "why_not": why_not.map(str::to_owned).or(why_not_yet),
            "allowed_at": at.map(StoreTime::rfc3339), "force": early.is_some(),
        },
        "forget": {
            "allowed": is_completed, "promise": FORGET,
            "why_not": (!is_completed).then(|| only_completed(kind)),
        },
        "erase": {
            "allowed": is_completed, "promise": ERASE,
            "why_not": (!is_completed).then_some("It has no answer to erase."),
        },
    })
}

fn only_unknown(kind: StateKind) -> &'static str {
    match kind {
        StateKind::Running => "It is running: wait until it ends or becomes unknown.",
        StateKind::Released => "It is released already: the next request with its key executes it.",
        StateKind::Completed => "It is completed, and its answer is final.",
        StateKind::Unknown => "",
    }
}

fn only_completed(kind: StateKind) -> &'static str {
    match kind {
        StateKind::Running => "It is running: forgetting it could execute it twice.",
        StateKind::Unknown => "It may have been executed: settle it, or release it if it was not.",
        StateKind::Released => {
            "It has no answer to forget: the next request with its key executes it."
        }
        StateKind::Completed => "",
    }
}

/// A moment, as people read it.
fn clock(at: StoreTime) -> String {
    let text = at.rfc3339();
    format!("{} {} UTC", &text[..10], &text[11..19])
}

const SETTLE: &str = "You state the final outcome: an answer, or that it failed. Every retry gets it, and nothing is executed.";
const RELEASE: &str = "You state that it was not executed. The next request with its key executes it: if it was executed before, it happens twice.";
const FORGET: &str = "Its record and its answer are deleted. The next request with its key is a new operation and is executed.";

const ERASE: &str = "Its answer and the text of its key are removed. Its outcome is kept: a retry gets 410, and nothing is executed.";

#[cfg(test)]
mod tests;
