//! Operations and events as JSON.

use onlyonce::clock::StoreTime;
use onlyonce::record::{Kept, NotKept, Record, Response, SettledBy, State};
use onlyonce::scope::Principal;
use onlyonce::{OperationEvent, StoredOperation};
use serde_json::{Value, json};

/// An operation, as lists have it.
pub(super) fn operation(operation: &StoredOperation) -> Value {
    let StoredOperation { id, record, .. } = operation;
    let (lease_until, unknown_since) = match record.state {
        State::Running { lease_until } => (Some(lease_until), None),
        State::Unknown { since } => (None, Some(since)),
        State::Released { .. } | State::Completed { .. } => (None, None),
    };
    let response = record.response();
    json!({
        "id": id.to_string(),
        "key": record.key.shown(),
        "state": record.state.kind().name(),
        "route": &*record.route,
        "principal": principal(&record.principal),
        "attempt": record.attempt,
        "revision": operation.revision().to_string(),
        "first_claimed_at": time(record.first_claimed_at),
        "lease_until": lease_until.map(time),
        "unknown_since": unknown_since.map(time),
        "releasable_at": operation.releasable_at().map(time),
        "expires_at": record.expires_at().map(time),
        "status": response.map(|response| response.status.as_u16()),
        "settled_by": settled_by(record).map(settled_by_name),
        "body_bytes": response.map(|response| response.body_bytes()),
        "replays": null,
    })
}

/// An event.
pub(super) fn event(event: &OperationEvent) -> Value {
    json!({
        "at": time(event.at),
        "kind": event.kind.name(),
        "id": event.id.to_string(),
        "key": event.key.shown(),
        "route": &*event.route,
        "principal": principal(&event.principal),
        "attempt": event.attempt,
        "status": event.status,
        "who": event.by.as_ref().map(onlyonce::By::who),
        "why": event.by.as_ref().map(onlyonce::By::why),
        "ids": null,
        "seq": null,
        "writer": null,
    })
}

/// The answer that is kept. A body that is not text is told in base64.
pub(super) fn response(response: &Response) -> Value {
    let headers: Vec<_> = response
        .headers
        .iter()
        .map(|(name, value)| {
            [name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()]
        })
        .collect();
    let (text, base64, why) = match &response.body {
        Kept::No(why) => (None, None, Some(not_kept(*why))),
        Kept::Sealed(_) => (None, None, Some(not_kept(NotKept::Unopened))),
        Kept::Bytes { body, .. } => match std::str::from_utf8(body) {
            Ok(text) => (Some(text), None, None),
            Err(_) => (None, Some(super::base64::encode(body)), None),
        },
    };
    json!({
        "status": response.status.as_u16(), "headers": headers, "body": text, "body_base64": base64, "not_kept": why,
    })
}

pub(super) fn not_kept(why: NotKept) -> &'static str {
    match why {
        NotKept::TooLarge => "too large",
        NotKept::Streamed => "streamed",
        NotKept::Secret => "secret",
        NotKept::Refused => "refused",
        NotKept::Location => "location",
        NotKept::Erased => "erased",
        NotKept::Unopened => "sealed, and no key opens it",
    }
}

pub(super) fn settled_by(record: &Record) -> Option<SettledBy> {
    match record.state {
        State::Completed { settled_by, .. } => Some(settled_by),
        _ => None,
    }
}

fn settled_by_name(by: SettledBy) -> &'static str {
    match by {
        SettledBy::Owner => "owner",
        SettledBy::Policy => "policy",
        SettledBy::Reconcile => "reconcile",
        SettledBy::Operator => "operator",
    }
}

pub(super) fn time(at: StoreTime) -> String {
    at.rfc3339()
}

pub(super) fn principal(principal: &Principal) -> String {
    principal.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
