//! Lists, single operations, and changes of one.

use http::StatusCode;
use onlyonce::scope::OperationId;
use onlyonce::{Bulk, OperateError, StoredOperation};
use serde_json::{Map, Value, json};
use tracing::info;

use super::answer::{Answer, NO_OPERATION, Problem, json};
use super::change::Members;
use super::desk::Desk;
use super::filter::{cursor_text, of_query};
use super::router::Endpoint;
use super::{audit, life, routes, shape, verdict};

/// `GET operations`.
pub(super) async fn list(desk: &Desk, query: &str) -> Result<Answer, Problem> {
    let asked = of_query(query)?;
    routes::demand_known(desk, asked.filter.route.as_deref()).await?;
    let limit = asked.limit.unwrap_or(LIMIT);
    let page = desk.once.operations().list(&asked.filter, asked.after, limit).await?;
    let operations: Vec<_> = page.operations.iter().take(limit).map(shape::operation).collect();
    let is_cut = page.is_cut || page.operations.len() > limit;
    Ok(json(&json!({
        "operations": operations, "next": page.next.map(cursor_text), "searched": page.searched,
        "truncated": is_cut,
    })))
}

/// `GET operations/{id}`.
pub(super) async fn show(desk: &Desk, id: &str) -> Result<Answer, Problem> {
    Ok(json(&detail(desk, identified(id)?).await?))
}

/// `POST operations/{id}/settle`, `release`, `forget` and `erase`: a bulk change of one. It is done to its end also if the
/// caller leaves. A dry run tells the operation as it is.
pub(super) async fn change(
    desk: &Desk,
    id: &str,
    endpoint: Endpoint,
    asked: Map<String, Value>,
) -> Result<Answer, Problem> {
    let (id, mut members) = (identified(id)?, Members(asked));
    let action = members.action(match endpoint {
        Endpoint::Settle => "settle",
        Endpoint::Release => "release",
        Endpoint::Erase => "erase",
        _ => "forget",
    })?;
    let (by, seen) = (members.by()?, members.revision()?);
    let is_dry = members.flag("dry_run")?.unwrap_or(false);
    members.none_left()?;
    let operations = desk.once.operations();
    let changes = [(id, seen, action, by)];
    let changing = tokio::spawn(async move { operations.change_each(&changes, is_dry).await });
    let before = only(changing.await.map_err(|_| ended())??)?;
    match detail(desk, id).await {
        Ok(after) => Ok(json(&after)),
        // Forgotten: what it was is all there is to tell.
        Err(problem) if problem.status == StatusCode::NOT_FOUND => {
            Ok(json(&told(desk, &before).await?))
        }
        Err(problem) => Err(problem),
    }
}

/// The one operation of a change, as it was before, or why it was refused.
fn only(mut bulk: Bulk) -> Result<StoredOperation, OperateError> {
    match bulk.refusals.pop() {
        Some(refusal) => Err(refusal.error),
        None => bulk.sample.pop().ok_or(OperateError::NotFound),
    }
}

/// `POST sweep`.
pub(super) async fn sweep(desk: &Desk, asked: Map<String, Value>) -> Result<Answer, Problem> {
    let mut members = Members(asked);
    let by = members.by()?;
    members.none_left()?;
    let operations = desk.once.operations();
    let sweeping = tokio::spawn(async move { operations.sweep().await });
    let deleted = sweeping.await.map_err(|_| ended())??;
    info!(deleted, who = by.who(), why = by.why(), "swept by an operator");
    Ok(json(&json!({ "deleted": deleted })))
}

async fn detail(desk: &Desk, id: OperationId) -> Result<Value, Problem> {
    let found = desk.once.operations().find(id).await?;
    let found = found.filter(|operation| !operation.record.is_expired(operation.now));
    let operation = found.ok_or(OperateError::NotFound)?;
    told(desk, &operation).await
}

async fn told(desk: &Desk, operation: &StoredOperation) -> Result<Value, Problem> {
    let mut told = shape::operation(operation);
    let events = match audit::life(desk, operation).await? {
        Some((replays, events)) => {
            told["replays"] = replays.into();
            events
        }
        None => life::of(operation, &desk.recent().of(operation.id)),
    };
    told["verdict"] = verdict::sentence(operation).into();
    told["checks"] = verdict::checks(operation).into();
    told["actions"] = verdict::actions(operation);
    told["response"] = operation.record.response().map(|kept| shape::response(kept)).into();
    told["events"] = events.into();
    Ok(told)
}

fn identified(id: &str) -> Result<OperationId, Problem> {
    id.parse().map_err(|_| Problem::not_found(NO_OPERATION))
}

/// The engine is shutting down, or a bug ended the task.
pub(super) fn ended() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "store_unavailable",
        "the change was cut off; look before you repeat it",
    )
}

/// Operations in a page where nobody says how many.
const LIMIT: usize = 50;
