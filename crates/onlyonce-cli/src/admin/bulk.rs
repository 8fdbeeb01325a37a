//! `POST operations/bulk`: one change for all operations that match, with a dry run before it.

use http::StatusCode;
use onlyonce::{Bulk, BulkRefusal, OperateError, Selection};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Problem, json};
use super::change::Members;
use super::desk::Desk;
use super::filter::of_json;
use super::operations::ended;
use super::{routes, shape};

/// The change is made to its end also if the caller leaves.
pub(super) async fn run(desk: &Desk, asked: Map<String, Value>) -> Result<Answer, Problem> {
    let mut members = Members(asked);
    let filter = members.0.remove("filter");
    let filter = of_json(&filter.ok_or_else(|| Problem::bad_request(NO_FILTER))?)?;
    let name = members.text("action")?.ok_or_else(|| Problem::bad_request(NO_ACTION))?;
    let action = members.action(&name)?;
    let by = members.by()?;
    let is_dry = members.flag("dry_run")?.ok_or_else(|| Problem::bad_request(NO_DRY_RUN))?;
    let expected =
        Expected { count: members.number("expect")?, digest: members.text("selection")? };
    members.none_left()?;
    if !is_dry && expected.is_nothing() {
        return Err(Problem::bad_request(NO_EXPECTATION));
    }
    routes::demand_known(desk, filter.route.as_deref()).await?;
    let place = desk.bulks.clone().try_acquire_owned().map_err(|_| busy())?;
    let operations = desk.once.operations();
    let changing = tokio::spawn(async move {
        let selection = operations.select(&filter).await?;
        if !is_dry {
            expected.demand(&selection)?;
        }
        let bulk = operations.change_all(&selection, &action, &by, is_dry).await;
        let bulk = bulk.map_err(|error| ended_early(error, is_dry))?;
        drop(place);
        Ok::<_, Problem>((bulk, selection.digest()))
    });
    let (bulk, digest) = changing.await.map_err(|_| ended())??;
    let mut told = told(&bulk, is_dry);
    told["selection"] = digest.into();
    Ok(json(&told))
}

/// What the caller saw in a dry run.
struct Expected {
    count: Option<u64>,
    /// Which operations, and in which state of their records.
    digest: Option<String>,
}

impl Expected {
    fn is_nothing(&self) -> bool {
        self.count.is_none() && self.digest.is_none()
    }

    fn demand(&self, selection: &Selection) -> Result<(), Problem> {
        self.count.map_or(Ok(()), |count| demand(count, selection.len()))?;
        match &self.digest {
            Some(digest) if *digest != selection.digest() => Err(changed(
                "other operations match than in the dry run, or one of them has changed; make a dry run again".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

/// What was seen in the dry run must still be what is there.
pub(super) fn demand(expected: u64, matched: usize) -> Result<(), Problem> {
    match expected == matched as u64 {
        true => Ok(()),
        false => Err(changed(format!(
            "{matched} operations match, and {expected} were expected; make a dry run again"
        ))),
    }
}

fn changed(detail: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, "count_changed", detail)
}

/// What was done, or would be.
pub(super) fn told(bulk: &Bulk, is_dry: bool) -> Value {
    json!({
        "matched": bulk.matched,
        "changed": bulk.changed,
        "refused": bulk.refused,
        "has_more": bulk.has_more,
        "sample": bulk.sample.iter().map(shape::operation).collect::<Vec<_>>(),
        "refusals": bulk.refusals.iter().map(refusal).collect::<Vec<_>>(),
        "dry_run": is_dry,
    })
}

fn refusal(refusal: &BulkRefusal) -> Value {
    json!({ "id": refusal.id.to_string(), "why": why(&refusal.error) })
}

/// The store gave no answer in the middle.
pub(super) fn ended_early(error: OperateError, is_dry: bool) -> Problem {
    let is_of_store = matches!(error, OperateError::Store(_));
    let problem = Problem::from(error);
    match is_of_store && !is_dry {
        true => Problem { detail: ENDED_EARLY.to_owned(), ..problem },
        false => problem,
    }
}

pub(super) fn why(error: &OperateError) -> String {
    match error {
        OperateError::TooEarly { at } => {
            format!("its first attempt may still arrive until {}", at.rfc3339())
        }
        _ => error.to_string(),
    }
}

pub(super) fn busy() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "busy",
        "2 bulk changes are already running; try again later",
    )
}

/// Changes of many that may be under way at once.
pub(super) const BULKS_MAX: usize = 2;
const ENDED_EARLY: &str = "the store stopped answering, and some of the changes may have been made: make a dry run again to see what is left";
const NO_FILTER: &str = "give a `filter`, such as {\"state\": \"unknown\"}; {} is every operation";
const NO_ACTION: &str = "give an `action`: settle, release, forget or erase";
/// Else a filter that is empty by mistake would change everything.
const NO_EXPECTATION: &str =
    "make a dry run first, and give the `selection` or the `matched` (as `expect`) that it told";
const NO_DRY_RUN: &str = "say `dry_run`: true to see what would be changed, false to change it";
