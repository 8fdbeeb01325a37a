//! Which operations are meant, as a query or a JSON object says it.

use onlyonce::OperationFilter;
use onlyonce::record::{StateKind, StateSet};
use onlyonce::store::Cursor;
use serde_json::Value;

use super::answer::Problem;
use crate::config::{nearest, units};

/// A filter, and where in a list to begin.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) filter: OperationFilter,
    pub(super) after: Option<Cursor>,
    pub(super) limit: Option<usize>,
}

/// Reads `state=unknown&route=…&after=…&limit=…`.
pub(super) fn of_query(query: &str) -> Result<Listing, Problem> {
    let (mut listing, mut draft) = (Listing::default(), Draft::default());
    for (name, value) in pairs(query) {
        match name.as_str() {
            "after" => once(&name, &mut listing.after, cursor(&value)?)?,
            "limit" => once(&name, &mut listing.limit, limit(&value)?)?,
            _ => draft.set(&name, &value)?,
        }
    }
    listing.filter = draft.filter();
    Ok(listing)
}

/// Reads the same names where a page of a list makes no sense.
pub(super) fn of_whole_query(query: &str) -> Result<OperationFilter, Problem> {
    let mut draft = Draft::default();
    pairs(query).try_for_each(|(name, value)| draft.set(&name, &value))?;
    Ok(draft.filter())
}

/// Reads `{"state": "unknown", "route": …}`; several states are a list, or have commas between.
pub(super) fn of_json(filter: &Value) -> Result<OperationFilter, Problem> {
    let members = filter.as_object().ok_or_else(|| Problem::bad_request(NOT_AN_OBJECT))?;
    let mut draft = Draft::default();
    for (name, value) in members {
        match value {
            Value::String(value) => draft.set(name, value)?,
            Value::Array(values) if name == "state" => {
                let texts = values.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
                let texts = texts.filter(|texts| !texts.is_empty());
                let texts = texts.ok_or_else(|| wrong(name, "a list of texts"))?;
                texts.into_iter().try_for_each(|value| draft.set(name, value))?;
            }
            _ => return Err(wrong(name, "a text")),
        }
    }
    Ok(draft.filter())
}

pub(super) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs.map(|(name, value)| (name.into_owned(), value.into_owned()))
}

/// How a cursor is told; it means something only to the store that made it.
pub(super) fn cursor_text(cursor: Cursor) -> String {
    format!("{:032x}", cursor.0)
}

#[derive(Default)]
struct Draft {
    states: Vec<StateKind>,
    filter: OperationFilter,
}

impl Draft {
    fn set(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        let filter = &mut self.filter;
        let is_empty = value.is_empty();
        match name {
            _ if is_empty => Err(Problem::bad_request(format!(
                "{name:?} is empty; give a value or leave it out"
            ))),
            "state" => {
                for state in value.split(',') {
                    self.states.push(state_kind(state)?);
                }
                Ok(())
            }
            "route" => once(name, &mut filter.route, value.into()),
            "key" => once(name, &mut filter.key, value.to_owned()),
            "key_prefix" => once(name, &mut filter.key_prefix, value.to_owned()),
            "principal" => once(name, &mut filter.principal, principal(value)?),
            "older" => {
                let age = units::duration(value);
                let age = age.map_err(|error| wrong(name, &error.to_string()))?;
                once(name, &mut filter.older, age)
            }
            _ => Err(Problem::bad_request(format!("there is no {name:?} to filter by; {NAMES}"))),
        }
    }

    fn filter(self) -> OperationFilter {
        match self.states.as_slice() {
            [] => self.filter,
            states => OperationFilter { states: StateSet::of(states), ..self.filter },
        }
    }
}

fn once<T>(name: &str, place: &mut Option<T>, value: T) -> Result<(), Problem> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Problem::bad_request(format!("{name:?} is given twice"))),
    }
}

pub(super) fn state_kind(text: &str) -> Result<StateKind, Problem> {
    let known = StateKind::ALL.into_iter().find(|kind| kind.name() == text);
    known.ok_or_else(|| {
        let names = StateKind::ALL.iter().map(|kind| kind.name());
        let near = nearest(text, names).map(|name| format!("; did you mean {name:?}?"));
        let near = near.unwrap_or_default();
        wrong("state", &format!("running, unknown, released or completed{near}"))
    })
}

fn principal(text: &str) -> Result<String, Problem> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_hex && (8..=64).contains(&text.len()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(wrong("principal", "8 to 64 hexadecimal digits")),
    }
}

fn cursor(text: &str) -> Result<Cursor, Problem> {
    let is_ours = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let cursor = u128::from_str_radix(text, 16).ok().filter(|_| is_ours);
    cursor.map(Cursor).ok_or_else(|| wrong("after", "the `next` of an earlier answer"))
}

fn limit(text: &str) -> Result<usize, Problem> {
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| wrong("limit", "a number from 1 to 200"))
}

fn wrong(name: &str, wanted: &str) -> Problem {
    Problem::bad_request(format!("{name:?} must be: {wanted}"))
}

const LIMIT_MAX: usize = 200;
const NOT_AN_OBJECT: &str = "`filter` is an object such as {\"state\": \"unknown\"}";
const NAMES: &str = "there are state, route, key, key_prefix, principal and older";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_query_and_an_object_say_the_same() {
        let query =
            of_query("state=unknown,running&route=POST+%2Fcharges&older=10m&principal=ABCDEF01");
        let object = json!({
            "state": ["unknown", "running"], "route": "POST /charges", "older": "10m", "principal": "abcdef01",
        });
        let filter = query.unwrap().filter;
        assert_eq!(filter, of_json(&object).unwrap());
        assert_eq!(filter.older, Some(Duration::from_secs(600)));
        assert!(!filter.states.contains(StateKind::Completed));
    }

    #[test]
    fn what_is_not_known_is_refused_and_not_ignored() {
        let wrong = [
            "stat=unknown",
            "state=lost",
            "state=",
            "key=",
            "older=ten",
            "older=10",
            "limit=0",
            "limit=201",
            "limit=x",
            "after=1",
            "after=+0000000000000000000000000000000",
            "principal=abc",
            "key=a&key=b",
        ];
        for query in wrong {
            assert!(of_query(query).is_err(), "{query}");
        }
        assert!(of_json(&json!({"state": 1})).is_err());
        assert!(of_json(&json!({"state": []})).is_err(), "no state is not every state");
        assert!(of_json(&json!([])).is_err());
        assert!(of_whole_query("limit=5").is_err());
    }

    #[test]
    fn a_cursor_comes_back() {
        let text = cursor_text(Cursor(u128::MAX - 1));
        assert_eq!(of_query(&format!("after={text}")).unwrap().after, Some(Cursor(u128::MAX - 1)));
    }
}
