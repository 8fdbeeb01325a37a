//! What an operator wants to be changed, as a JSON object says it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use onlyonce::record::{Kept, Response};
use onlyonce::{Action, By, RevisionDigest};
use serde_json::{Map, Value};

use super::answer::Problem;

/// The members of a request for a change, each taken once; what is left at the end is not known.
#[derive(Debug)]
pub(super) struct Members(pub(super) Map<String, Value>);

impl Members {
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "a text")),
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(wrong(name, "true or false")),
        }
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(value) => whole(&value).map(Some).ok_or_else(|| wrong(name, "a whole number")),
        }
    }

    /// Who changes it, and why.
    pub(super) fn by(&mut self) -> Result<By, Problem> {
        let who = self.text("who")?.unwrap_or_else(|| NOBODY_IN_PARTICULAR.to_owned());
        let why = self.text("reason")?.unwrap_or_default();
        By::new(&who, &why).map_err(|error| Problem::bad_request(error.to_string()))
    }

    /// The action with this name, with what it needs.
    pub(super) fn action(&mut self, name: &str) -> Result<Action, Problem> {
        match name {
            "settle" => self.settle(),
            "release" => Ok(Action::Release { force: self.flag("force")?.unwrap_or(false) }),
            "forget" => Ok(Action::Forget),
            "erase" => Ok(Action::Erase),
            _ => Err(wrong("action", "settle, release, forget or erase")),
        }
    }

    fn settle(&mut self) -> Result<Action, Problem> {
        let failed = self.flag("failed")?.unwrap_or(false);
        let status = self.number("status")?;
        let headers = self.0.remove("headers");
        let body = self.text("body")?;
        match (failed, status) {
            (true, None) if headers.is_none() && body.is_none() => Ok(Action::Fail),
            (true, _) => Err(Problem::bad_request(
                "`failed` has an answer of its own; leave status, headers and body out",
            )),
            (false, None) => Err(Problem::bad_request(
                "give the `status` of the answer that retries get, or `failed`: true",
            )),
            (false, Some(status)) => answer(status, headers.as_ref(), body).map(Action::Settle),
        }
    }

    /// A member that is misspelt must not be taken for one that is absent.
    pub(super) fn none_left(&self) -> Result<(), Problem> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(Problem::bad_request(format!("unknown member {name:?}"))),
        }
    }

    /// The state of the record that the caller saw, if the change is only for that.
    pub(super) fn revision(&mut self) -> Result<Option<RevisionDigest>, Problem> {
        let text = self.text("revision")?;
        let revision = text.map(|text| text.parse()).transpose();
        revision.map_err(|_| wrong("revision", "the `revision` of the operation as it was told"))
    }
}

/// JSON has one kind of numbers: 201.0 is 201.
fn whole(value: &Value) -> Option<u64> {
    let of_float =
        || value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=1e15).contains(number));
    value.as_u64().or_else(|| of_float().map(|number| number as u64))
}

/// The answer that retries get.
pub(super) fn answer(
    status: u64,
    headers: Option<&Value>,
    body: Option<String>,
) -> Result<Arc<Response>, Problem> {
    let status = u16::try_from(status).ok().filter(|status| (200..600).contains(status));
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.ok_or_else(|| wrong("status", "a number from 200 to 599"))?;
    let mut kept = HeaderMap::new();
    for (name, value) in headers.map(members).transpose()?.into_iter().flatten() {
        let (name, value) = header(name, value)?;
        kept.append(name, value);
    }
    let body = Kept::Bytes { body: Bytes::from(body.unwrap_or_default()), trailers: None };
    Ok(Arc::new(Response { status, headers: kept, body }))
}

fn members(headers: &Value) -> Result<impl Iterator<Item = (&String, &Value)>, Problem> {
    let members = headers.as_object().map(Map::iter);
    members.ok_or_else(|| {
        wrong("headers", "an object such as {\"content-type\": \"application/json\"}")
    })
}

fn header(name: &str, value: &Value) -> Result<(HeaderName, HeaderValue), Problem> {
    let text = value.as_str().ok_or_else(|| wrong(name, "a text"))?;
    // What is not ASCII means something else to every reader of a header.
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let value = HeaderValue::from_str(text).ok().filter(|_| is_printable);
    let parsed = name.parse::<HeaderName>().ok().zip(value);
    match parsed {
        Some((name, _)) if OF_A_CONNECTION.contains(&name) => Err(Problem::bad_request(format!(
            "the header {name} belongs to a connection, not to an answer"
        ))),
        Some(header) => Ok(header),
        None => Err(Problem::bad_request(format!("{name:?} with this value is no header"))),
    }
}

fn wrong(name: &str, wanted: &str) -> Problem {
    Problem::bad_request(format!("{name:?} must be {wanted}"))
}

/// Who it was, where nobody says so.
const NOBODY_IN_PARTICULAR: &str = "admin";

const OF_A_CONNECTION: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::SET_COOKIE,
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn members(value: Value) -> Members {
        let Value::Object(members) = value else { panic!("an object") };
        Members(members)
    }

    #[test]
    fn an_answer_has_a_status_headers_and_a_body() {
        let mut said = members(json!({
            "status": 201, "headers": {"content-type": "application/json"}, "body": "{}", "reason": "seen",
        }));
        let Ok(Action::Settle(response)) = said.action("settle") else { panic!("an answer") };
        assert_eq!((response.status, response.body_bytes()), (StatusCode::CREATED, 2));
        assert_eq!(response.headers["content-type"], "application/json");
        assert_eq!(said.by().unwrap().who(), "admin");
        assert!(said.none_left().is_ok());
    }

    #[test]
    fn half_an_answer_is_none() {
        let wrong = [
            json!({}),
            json!({"status": 42}),
            json!({"status": 100}),
            json!({"status": "201"}),
            json!({"status": 201, "failed": true}),
            json!({"failed": true, "body": "x"}),
            json!({"status": 201, "headers": {"a b": "c"}}),
            json!({"status": 201, "headers": {"x": "a\r\nb"}}),
            json!({"status": 201, "headers": {"content-length": "7"}}),
            json!({"status": 201, "headers": {"x": "é"}}),
            json!({"status": 201, "body": 7}),
        ];
        for said in wrong {
            assert!(members(said.clone()).action("settle").is_err(), "{said}");
        }
        assert_eq!(members(json!({"failed": true})).action("settle").unwrap(), Action::Fail);
    }

    #[test]
    fn a_reason_is_needed_and_a_misspelt_member_is_told() {
        assert!(members(json!({})).by().is_err());
        assert!(members(json!({"reason": "  "})).by().is_err());
        assert!(members(json!({"forse": true})).none_left().is_err());
    }
}
