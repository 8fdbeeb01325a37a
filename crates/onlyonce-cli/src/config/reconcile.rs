//! How the upstream is asked what became of an operation.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderValue, Method};
use onlyonce::fingerprint::Pointer;
use onlyonce::policy::Absent;

use super::error::{Remark, Remarks};
use super::field::Field;
use super::names::RECONCILE;

/// How the upstream is asked what became of an operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReconcileRule {
    /// The question.
    pub ask: Ask,
    /// Where its answer has a value if the operation was executed.
    pub found: Pointer,
    /// What two answers of 404 mean.
    pub absent: Absent,
    /// How long after the last possible send they count.
    pub quiet: Duration,
    /// The `Authorization` to ask with, marked as sensitive; without it, that of the client which retries.
    pub auth: Option<HeaderValue>,
}

impl ReconcileRule {
    /// The rule that the table has; none if it is empty.
    pub(super) fn read(field: Field<'_>) -> Result<Option<Self>, Remarks> {
        if field.table()?.is_empty() {
            return Ok(None);
        }
        let mut draft = Draft::default();
        field.each(&RECONCILE, |field| Ok(draft.set(field)?))?;
        match (draft.ask, draft.found) {
            (Some(ask), Some(found)) => Ok(Some(Self {
                ask,
                found,
                absent: draft.absent.unwrap_or(Absent::Hold),
                quiet: draft.quiet.unwrap_or(QUIET),
                auth: draft.auth,
            })),
            (None, _) => {
                Err(field.wrong("it needs `ask`, such as \"GET /charges?key={key}\"").into())
            }
            (_, None) => {
                Err(field.wrong("it needs `found`, a JSON pointer such as \"/0/id\"").into())
            }
        }
    }
}

#[derive(Default)]
struct Draft {
    ask: Option<Ask>,
    found: Option<Pointer>,
    absent: Option<Absent>,
    quiet: Option<Duration>,
    auth: Option<HeaderValue>,
}

impl Draft {
    fn set(&mut self, field: Field<'_>) -> Result<(), Remark> {
        match field.name.name {
            "ask" => self.ask = Some(field.parsed()?),
            "found" => self.found = Some(field.parsed()?),
            "absent" => self.absent = Some(field.one_of(&ABSENT)?),
            "quiet" => self.quiet = Some(field.duration()?),
            _ => self.auth = Some(credential(field)?),
        }
        Ok(())
    }
}

const ABSENT: [(&str, Absent); 2] = [("hold", Absent::Hold), ("release", Absent::Release)];

fn credential(field: Field<'_>) -> Result<HeaderValue, Remark> {
    let value = HeaderValue::from_str(&field.confidential()?);
    let mut value = value.map_err(|_| field.wrong("it has characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

const QUIET: Duration = Duration::from_secs(10 * 60);

/// A question about one operation: `GET /charges?key={key}`.
///
/// ```
/// use onlyonce_cli::config::Ask;
///
/// let ask: Ask = "GET /charges?key={key}".parse()?;
/// assert_eq!(ask.target("a/b c"), "/charges?key=a%2Fb%20c");
/// # Ok::<(), onlyonce_cli::config::AskError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    template: String,
}

impl Ask {
    /// The method; a question changes nothing, so it is GET.
    pub fn method(&self) -> Method {
        Method::GET
    }

    /// The path and query with the key in its place, percent-encoded.
    pub fn target(&self, key: &str) -> String {
        self.template.replace(PLACE, &encoded(key))
    }
}

impl FromStr for Ask {
    type Err = AskError;

    fn from_str(text: &str) -> Result<Self, AskError> {
        let template = text.strip_prefix("GET ").map(str::trim_start).ok_or(AskError::Shape)?;
        let example = template.replace(PLACE, "key");
        match example.parse::<http::uri::PathAndQuery>() {
            _ if !template.starts_with('/') => Err(AskError::Shape),
            _ if !template.contains(PLACE) => Err(AskError::NoKey),
            _ if example.contains(['{', '}']) => Err(AskError::Braces),
            Ok(path) if path.as_str() == example => Ok(Self { template: template.into() }),
            _ => Err(AskError::Path),
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GET {}", self.template)
    }
}

/// All but unreserved characters are encoded: a key must not reach out of its place.
fn encoded(key: &str) -> String {
    let encode = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    key.bytes().map(encode).collect()
}

const PLACE: &str = "{key}";

/// Why a text is no question about an operation. Write it as the message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Write the method and a path.
    #[error("a question is GET, a space and a path, such as \"GET /charges?key={{key}}\"")]
    Shape,
    /// Put the key where the upstream looks for it.
    #[error("a question has {{key}} where the operation's key goes")]
    NoKey,
    /// Use no other place than the key's.
    #[error("a question has no other place than {{key}}")]
    Braces,
    /// Percent-encode what a path cannot have.
    #[error("after GET comes a path, with a query or without one")]
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_reaches_out_of_its_place() {
        let ask: Ask = "GET /charges/{key}?again={key}".parse().unwrap();
        assert_eq!(ask.target("../x?y#z&"), "/charges/..%2Fx%3Fy%23z%26?again=..%2Fx%3Fy%23z%26");
        assert_eq!(ask.to_string(), "GET /charges/{key}?again={key}");
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let cases = [
            ("", AskError::Shape),
            ("POST /x?k={key}", AskError::Shape),
            ("/x?k={key}", AskError::Shape),
            ("GET x?k={key}", AskError::Shape),
            ("GET http://other/{key}", AskError::Shape),
            ("GET /charges", AskError::NoKey),
            ("GET /{key}/{id}", AskError::Braces),
            ("GET /{key}#x", AskError::Path),
            ("GET /{key} x", AskError::Path),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Ask>(), Err(error), "{text}");
        }
    }
}
