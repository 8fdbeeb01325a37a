//! The answer of an operation, as it is kept.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::store::BoxError;

/// An answer: what the first caller gets, and every duplicate after it.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// From 100 to 599.
    pub status: StatusCode,
    /// Kept by name and value. The order of values of one name is kept, the order of names is not.
    pub headers: HeaderMap,
    /// Kept byte for byte.
    pub body: Bytes,
}

impl Reply {
    /// An answer without headers.
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, headers: HeaderMap::new(), body: body.into() }
    }

    /// An answer whose body is `value` as JSON.
    ///
    /// # Errors
    /// If `value` cannot be written as JSON.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Self, ReplyError> {
        let body = serde_json::to_vec(value).map_err(|error| ReplyError(error.into()))?;
        Ok(Self::new(status, body)
            .with_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json")))
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// The headers as the database keeps them: an object of texts, and of lists of texts where a name is repeated. A
    /// byte of a value is a character, so that every value comes back as it was.
    pub(crate) fn headers_json(&self) -> String {
        let mut object = Map::new();
        for name in self.headers.keys() {
            let values = self.headers.get_all(name).iter();
            let mut values: Vec<_> =
                values.map(|value| Value::String(latin1(value.as_bytes()))).collect();
            let value = match values.len() {
                1 => values.remove(0),
                _ => Value::Array(values),
            };
            object.insert(name.as_str().to_owned(), value);
        }
        Value::Object(object).to_string()
    }

    /// The answer that the database has kept.
    pub(crate) fn kept(status: i32, headers: &str, body: Vec<u8>) -> Result<Self, ReplyError> {
        let status = u16::try_from(status).map_err(unreadable)?;
        let object: Map<String, Value> = serde_json::from_str(headers).map_err(unreadable)?;
        let mut headers = HeaderMap::new();
        for (name, value) in object {
            let name: HeaderName = name.parse().map_err(unreadable)?;
            let values = if let Value::Array(values) = value { values } else { vec![value] };
            for value in values {
                headers.append(name.clone(), header_value(&value)?);
            }
        }
        let status = StatusCode::from_u16(status).map_err(unreadable)?;
        Ok(Self { status, headers, body: body.into() })
    }
}

/// Without the headers and the body: they are the caller's business.
impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).finish_non_exhaustive()
    }
}

impl From<Response<Bytes>> for Reply {
    fn from(response: Response<Bytes>) -> Self {
        let (parts, body) = response.into_parts();
        Self { status: parts.status, headers: parts.headers, body }
    }
}

impl From<Reply> for Response<Bytes> {
    fn from(reply: Reply) -> Self {
        let mut response = Self::new(reply.body);
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response
    }
}

/// The answer cannot be written or read. Check its type, and what wrote it.
#[derive(Debug, thiserror::Error)]
#[error("the answer does not convert")]
pub struct ReplyError(#[source] BoxError);

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn header_value(value: &Value) -> Result<HeaderValue, ReplyError> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
    HeaderValue::from_bytes(&bytes.map_err(unreadable)?).map_err(unreadable)
}

fn unreadable(error: impl Into<BoxError>) -> ReplyError {
    ReplyError(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_as_it_was() {
        let odd = HeaderValue::from_bytes(b"caf\xe9").unwrap();
        let reply = Reply::new(StatusCode::CREATED, &b"\x00\xff"[..])
            .with_header(header::LOCATION, HeaderValue::from_static("/charges/1"))
            .with_header(header::VARY, HeaderValue::from_static("b"))
            .with_header(header::VARY, odd);
        let kept = Reply::kept(201, &reply.headers_json(), reply.body.to_vec()).unwrap();
        assert_eq!(kept, reply);
    }

    #[test]
    fn headers_that_another_language_wrote_are_read() {
        let kept = Reply::kept(200, r#"{"x-count": 3, "vary": ["a", "b"]}"#, Vec::new()).unwrap();
        assert_eq!(kept.headers["x-count"], "3");
        assert_eq!(kept.headers.get_all(header::VARY).iter().count(), 2);
    }

    #[test]
    fn headers_that_are_none_are_an_error() {
        for headers in [r#"{"a b": "c"}"#, r#"{"a": "\u0000"}"#, r#"{"a": "€"}"#, "[]"] {
            assert!(Reply::kept(200, headers, Vec::new()).is_err(), "{headers}");
        }
    }
}
