//! The events of one operation: what this process remembers, and what the record itself tells.

use std::sync::Arc;

use onlyonce::clock::StoreTime;
use onlyonce::record::{SettledBy, State};
use onlyonce::{EventKind, OperationEvent, StoredOperation};
use serde_json::{Value, json};

use super::shape;

/// Oldest first.
pub(super) fn of(operation: &StoredOperation, seen: &[Arc<OperationEvent>]) -> Vec<Value> {
    let has = |kind| seen.iter().any(|event| event.kind == kind);
    let recorded = recorded(operation).into_iter().filter(|(_, kind)| !has(*kind));
    let mut life: Vec<(StoreTime, Value)> =
        recorded.map(|(at, kind)| (at, told(operation, at, kind))).collect();
    life.extend(seen.iter().map(|event| (event.at, shape::event(event))));
    life.sort_by_key(|(at, _)| *at);
    life.into_iter().map(|(_, event)| event).collect()
}

/// What the record tells of its past.
fn recorded(operation: &StoredOperation) -> Vec<(StoreTime, EventKind)> {
    let record = &operation.record;
    let claimed = (record.first_claimed_at, EventKind::Claimed);
    match record.state {
        State::Running { .. } | State::Released { .. } => vec![claimed],
        State::Unknown { since } => vec![claimed, (since, EventKind::Unknown)],
        State::Completed { settled_by, .. } => {
            let kind = match settled_by {
                SettledBy::Owner => EventKind::Executed,
                SettledBy::Policy | SettledBy::Operator => EventKind::Settled,
                SettledBy::Reconcile => EventKind::Reconciled,
            };
            vec![claimed, (completed_at(operation).unwrap_or(operation.now), kind)]
        }
    }
}

/// A completed record is kept for its time to live, so its end tells when that began.
pub(super) fn completed_at(operation: &StoredOperation) -> Option<StoreTime> {
    match operation.record.state {
        State::Completed { expires_at, .. } => {
            Some(expires_at.plus_ms(operation.record.ttl_ms.saturating_neg()))
        }
        _ => None,
    }
}

fn told(operation: &StoredOperation, at: StoreTime, kind: EventKind) -> Value {
    let StoredOperation { id, record, .. } = operation;
    let status = record.response().map(|response| response.status.as_u16());
    let is_first = kind == EventKind::Claimed;
    json!({
        "at": at.rfc3339(),
        "kind": kind.name(),
        "id": id.to_string(),
        "key": record.key.shown(),
        "route": &*record.route,
        "principal": shape::principal(&record.principal),
        "attempt": if is_first { 1 } else { record.attempt },
        "status": if is_first { None } else { status },
        "who": null, "why": null, "ids": null, "seq": null, "writer": null,
    })
}
