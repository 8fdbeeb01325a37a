//! `POST operations/bulk.csv`: a change for each row.
//!
//! The first row names the columns, in any order: `id` and `action` (settle, fail, release, forget, erase) are needed, and a
//! `reason` in each row or in the query; `status`, `body`, `content_type` are of a settle, `force` of a release. With a
//! `revision` only an operation that is still as it was listed is changed.
//! Nothing is changed unless every row can be understood.

use std::collections::{HashMap, HashSet};

use http::HeaderMap;
use onlyonce::scope::OperationId;
use onlyonce::{Action, By, Operations, RevisionDigest};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Problem, json};
use super::body::demand as demand_type;
use super::bulk::{busy, demand, ended_early, told};
use super::change::Members;
use super::desk::Desk;
use super::filter::pairs;
use super::operations::ended;

/// The changes are made to the last also if the caller leaves.
pub(super) async fn run(
    desk: &Desk,
    query: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Answer, Problem> {
    demand_type(headers, "text/csv")?;
    let asked = Asked::of_query(query)?;
    let rows = rows(body, &asked)?;
    if let Some(expected) = asked.expect {
        demand(expected, rows.len())?;
    }
    let place = desk.bulks.clone().try_acquire_owned().map_err(|_| busy())?;
    let (operations, is_dry) = (desk.once.operations(), asked.is_dry);
    let changing = tokio::spawn(async move {
        let changed = operations.change_each(&rows, is_dry).await;
        drop(place);
        changed
    });
    let bulk = changing.await.map_err(|_| ended())?;
    let bulk = bulk.map_err(|error| ended_early(error, is_dry))?;
    Ok(json(&told(&bulk, is_dry)))
}

/// What the query says about all rows.
#[derive(Debug)]
struct Asked {
    is_dry: bool,
    expect: Option<u64>,
    who: Option<String>,
    reason: Option<String>,
}

impl Asked {
    fn of_query(query: &str) -> Result<Self, Problem> {
        let mut named = HashMap::new();
        for (name, value) in pairs(query) {
            if named.insert(name.clone(), value).is_some() {
                return Err(Problem::bad_request(format!("{name:?} is given twice")));
            }
        }
        let is_dry = match named.remove("dry_run").as_deref() {
            Some("true") => true,
            Some("false") => false,
            _ => return Err(Problem::bad_request("say dry_run=true or dry_run=false")),
        };
        let expect = named.remove("expect").map(|text| text.parse()).transpose();
        let expect = expect.map_err(|_| Problem::bad_request("`expect` must be a whole number"))?;
        let (who, reason) = (named.remove("who"), named.remove("reason"));
        match named.into_keys().next() {
            None => Ok(Self { is_dry, expect, who, reason }),
            Some(name) => Err(Problem::bad_request(format!("unknown parameter {name:?}"))),
        }
    }
}

/// How many rows there are, if all can be understood: for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(super) fn count(query: &str, body: &[u8]) -> Option<usize> {
    Some(rows(body, &Asked::of_query(query).ok()?).ok()?.len())
}

type Row = (OperationId, Option<RevisionDigest>, Action, By);

fn rows(body: &[u8], asked: &Asked) -> Result<Vec<Row>, Problem> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(body);
    let columns = reader.headers().map_err(|error| unreadable(&error))?.clone();
    if let Some(unknown) = columns.iter().find(|column| !COLUMNS.contains(column)) {
        let known = COLUMNS.join(", ");
        return Err(Problem::bad_request(format!(
            "there is no column {unknown:?}; there are {known}"
        )));
    }
    if columns.iter().collect::<HashSet<_>>().len() < columns.len() {
        return Err(Problem::bad_request("a column is named twice"));
    }
    let (mut rows, mut ids) = (Vec::new(), HashMap::new());
    for record in reader.records() {
        let record = record.map_err(|error| unreadable(&error))?;
        if rows.len() == Operations::BULK_MAX {
            return Err(Problem::bad_request(format!(
                "there are more than {} rows",
                Operations::BULK_MAX
            )));
        }
        // The heads are the first row.
        let number = rows.len() + 2;
        let row = row(&columns, &record, asked).map_err(|problem| Problem {
            detail: format!("row {number}: {}", problem.detail),
            ..problem
        })?;
        if let Some(first) = ids.insert(row.0, number) {
            return Err(Problem::bad_request(format!("row {number} has the id of row {first}")));
        }
        rows.push(row);
    }
    Ok(rows)
}

fn row(
    columns: &csv::StringRecord,
    record: &csv::StringRecord,
    asked: &Asked,
) -> Result<Row, Problem> {
    let cells = columns.iter().zip(record).filter(|(_, cell)| !cell.is_empty());
    let mut cells: HashMap<&str, &str> = cells.collect();
    let id = cells.remove("id").unwrap_or_default();
    let id = id.parse().map_err(|_| Problem::bad_request("`id` is 32 hexadecimal digits"))?;
    let (name, mut members) = (cells.remove("action").unwrap_or_default(), Map::new());
    for (name, otherwise) in [("who", &asked.who), ("reason", &asked.reason)] {
        let text = cells.remove(name).or(otherwise.as_deref());
        members.extend(text.map(|text| (name.to_owned(), text.into())));
    }
    for (name, cell) in cells {
        let (name, value) = member(name, cell)?;
        members.insert(name.to_owned(), value);
    }
    let mut members = Members(members);
    let action = match name {
        "fail" => Action::Fail,
        name => members.action(name)?,
    };
    let (by, seen) = (members.by()?, members.revision()?);
    members.none_left()?;
    Ok((id, seen, action, by))
}

/// A cell as the member of a JSON object that means the same.
fn member<'a>(name: &'a str, cell: &str) -> Result<(&'a str, Value), Problem> {
    Ok(match name {
        "status" => {
            let status: u64 =
                cell.parse().map_err(|_| Problem::bad_request("`status` must be a number"))?;
            (name, status.into())
        }
        "force" => (name, matches!(cell, "true" | "yes" | "1").into()),
        "content_type" => ("headers", json!({ "content-type": cell })),
        _ => (name, cell.into()),
    })
}

fn unreadable(error: &csv::Error) -> Problem {
    Problem::bad_request(format!("the CSV cannot be read: {error}"))
}

const COLUMNS: [&str; 9] =
    ["id", "revision", "action", "status", "body", "content_type", "force", "reason", "who"];
