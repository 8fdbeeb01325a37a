//! `GET audit`, `GET audit/heads`, `GET` and `POST audit/verify`: the audit trail.

use http::StatusCode;
use onlyonce::clock::{Clock, StoreTime, SystemClock};
use onlyonce::scope::OperationId;
use onlyonce::store::audit::{Entry, EntryQuery, Head};
use onlyonce::{OperateError, Operations, StoredOperation};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Problem, json};
use super::change::Members;
use super::desk::Desk;
use super::filter::pairs;
use crate::commands::audit::{Moment, entry_value, head_value, verified_value};

/// A page of entries, oldest first.
pub(super) async fn list(desk: &Desk, query: &str) -> Result<Answer, Problem> {
    let operations = desk.once.operations();
    let page = operations.audit(asked(&operations, query)?).await?;
    let entries: Vec<_> = page.entries.iter().map(entry_value).collect();
    let next = page.next.map(|next| next.to_string());
    Ok(json(&json!({ "entries": entries, "next": next })))
}

/// Where the chains of the trail end, to be kept elsewhere.
pub(super) async fn heads(desk: &Desk, query: &str) -> Result<Answer, Problem> {
    demand_no_query(query)?;
    let heads = desk.once.operations().audit_heads().await?;
    let heads: Vec<_> = heads.iter().map(head_value).collect();
    Ok(json(&json!({ "heads": heads })))
}

/// Whether the whole trail fits together, and fits the heads that were kept elsewhere.
pub(super) async fn verify(desk: &Desk, query: &str, kept: &[Head]) -> Result<Answer, Problem> {
    demand_no_query(query)?;
    let _place = desk.verifying.try_acquire().map_err(|_| already_verifying())?;
    Ok(json(&verified_value(&desk.once.operations().verify_audit(kept).await?)))
}

/// The heads in the body of a request.
pub(super) fn kept_heads(asked: Map<String, Value>) -> Result<Vec<Head>, Problem> {
    let mut members = Members(asked);
    let heads = members.0.remove("heads");
    members.none_left()?;
    let heads = heads.as_ref().and_then(Value::as_array).ok_or_else(no_heads)?;
    let read = |head: &Value| head.as_str().and_then(|head| head.parse().ok());
    heads.iter().map(|head| read(head).ok_or_else(no_heads)).collect()
}

/// How many entries there are, and how many were dropped since the start; null without a trail. While the store does not
/// answer, the number of entries is null.
pub(super) async fn counted(desk: &Desk) -> Value {
    let operations = desk.once.operations();
    if !operations.is_audited() {
        return Value::Null;
    }
    let entries = desk.entries.read(entries(&operations)).await;
    json!({ "entries": entries, "dropped": desk.once.counts().audit_dropped })
}

async fn entries(operations: &Operations) -> Result<u64, OperateError> {
    let heads = operations.audit_heads().await?;
    Ok(heads.iter().map(|head| head.last.sequence.saturating_sub(head.from.sequence)).sum())
}

/// How often an operation was replayed, and its newest events; `None` without a trail.
pub(super) async fn life(
    desk: &Desk,
    operation: &StoredOperation,
) -> Result<Option<(u64, Vec<Value>)>, Problem> {
    let operations = desk.once.operations();
    if !operations.is_audited() {
        return Ok(None);
    }
    let entries = newest(&operations, operation.id, operation.now).await?;
    let told = entries.iter().map(|entry| {
        let mut event = entry_value(entry);
        event["key"] = operation.record.key.shown().into();
        event
    });
    Ok(Some((operations.replays(operation.id).await?, told.collect())))
}

/// The newest entries of an operation, oldest first: all of them up to [`EVENTS_MAX`].
///
/// The trail is read from its oldest entry on, and a key that is retried in a loop has too many entries to read them all.
/// So the time between its first entry and now is halved until the entries of the later part fit into one page.
async fn newest(
    operations: &Operations,
    id: OperationId,
    now: StoreTime,
) -> Result<Vec<Entry>, OperateError> {
    let query = EntryQuery { id: Some(id), ..EntryQuery::all(EVENTS_MAX) };
    let page = operations.audit(query).await?;
    let (Some(first), Some(last), Some(_)) = (page.entries.first(), page.entries.last(), page.next)
    else {
        return Ok(page.entries);
    };
    let since = async |at| operations.audit(EntryQuery { since: Some(at), ..query }).await;
    let (mut too_early, mut late) = (first.at, now.max(last.at));
    let mut newest = since(late).await?.entries;
    for _ in 0..HALVINGS_MAX {
        let middle = too_early.plus_ms(late.since_ms(too_early) / 2);
        if newest.len() >= EVENTS_MAX / 2 || middle == too_early {
            break;
        }
        let page = since(middle).await?;
        match page.next {
            Some(_) => too_early = middle,
            None => (late, newest) = (middle, page.entries),
        }
    }
    Ok(newest)
}

fn asked(operations: &Operations, query: &str) -> Result<EntryQuery, Problem> {
    let mut asked = EntryQuery::all(LIMIT);
    for (name, value) in pairs(query) {
        let wrong = |is: &str| Problem::bad_request(format!("`{name}` is {is}"));
        let moment = || {
            let moment: Result<Moment, _> = value.parse();
            moment.map(|moment| moment.at(SystemClock.wall())).map_err(|_| wrong(A_TIME))
        };
        match name.as_str() {
            "id" => asked.id = Some(value.parse::<OperationId>().map_err(|_| wrong(AN_ID))?),
            "key" if value.is_empty() => return Err(wrong("a key")),
            "key" => asked.key = Some(operations.key_digest(&value)),
            "since" => asked.since = Some(moment()?),
            "until" => asked.until = Some(moment()?),
            "after" => asked.after = Some(value.parse().map_err(|_| wrong("the next of a page"))?),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                asked.limit = limit.ok_or_else(|| wrong("a number from 1 to 200"))?;
            }
            _ => return Err(unknown(&name)),
        }
    }
    Ok(asked)
}

fn demand_no_query(query: &str) -> Result<(), Problem> {
    match pairs(query).next() {
        Some((name, _)) => Err(unknown(&name)),
        None => Ok(()),
    }
}

fn already_verifying() -> Problem {
    let detail = "the audit trail is already being verified; try again later";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
}

fn no_heads() -> Problem {
    Problem::bad_request("`heads` is a list of the lines that `onlyonce audit heads` prints")
}

fn unknown(name: &str) -> Problem {
    Problem::bad_request(format!("there is no `{name}` here"))
}

const AN_ID: &str = "32 hexadecimal digits";
const A_TIME: &str = "a time such as 2026-11-17T14:02:07Z, or 24h for that long ago";
/// Entries in a page where nobody says how many, and at most.
const LIMIT: usize = 50;
const LIMIT_MAX: usize = 200;
/// Events that are told of one operation.
const EVENTS_MAX: usize = 500;
/// Thirty years, halved so often, are a millisecond.
const HALVINGS_MAX: usize = 40;

#[cfg(test)]
mod tests;
