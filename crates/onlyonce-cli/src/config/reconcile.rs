//! How the upstream is asked what became of an operation.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderValue, Method};
use onlyonce::fingerprint::Pointer;
use onlyonce::policy::Absent;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::error::{Remark, Remarks};
use super::field::Field;
use super::names::RECONCILE;
use super::pattern::is_name;

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

/// A question about one operation: `GET /accounts/{account}/charges?key={key}`.
///
/// ```
/// use onlyonce_cli::config::Ask;
///
/// let ask: Ask = "GET /accounts/{account}/charges?key={key}".parse()?;
/// let target = ask.target("a/b c", &[("account", "7")]);
/// assert_eq!(target.as_deref(), Some("/accounts/7/charges?key=a%2Fb%20c"));
/// # Ok::<(), onlyonce_cli::config::AskError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    template: String,
    /// The places besides the key's.
    names: Vec<String>,
}

impl Ask {
    /// The method; a question changes nothing, so it is GET.
    pub fn method(&self) -> Method {
        Method::GET
    }

    /// The path and query with every value in its place, percent-encoded. `None` where a value would lead
    /// out of its place: a segment of dots is another path.
    pub fn target(&self, key: &str, places: &[(&str, &str)]) -> Option<String> {
        let mut target = self.template.replace(KEY, &encoded(key.as_bytes()));
        for (name, value) in places {
            target = target.replace(&format!("{{{name}}}"), &encoded_segments(value));
        }
        let path = target.split('?').next().unwrap_or_default();
        let leads_out = path.split('/').any(|segment| matches!(segment, "." | ".."));
        (!leads_out).then_some(target)
    }

    /// Whether the question has this place.
    pub(super) fn names(&self, place: &str) -> bool {
        self.names.iter().any(|name| name == place)
    }

    /// The first place that is none of these, which the route's `match` names.
    pub(super) fn unknown_place<'a>(
        &'a self,
        names: impl Iterator<Item = &'a str>,
    ) -> Option<&'a str> {
        let known: Vec<_> = names.collect();
        self.names.iter().map(String::as_str).find(|name| !known.contains(name))
    }
}

impl FromStr for Ask {
    type Err = AskError;

    fn from_str(text: &str) -> Result<Self, AskError> {
        let template = text.strip_prefix("GET ").map(str::trim_start).ok_or(AskError::Shape)?;
        let names = places(template).ok_or(AskError::Braces)?;
        let example = template.replace(['{', '}'], "");
        match example.parse::<http::uri::PathAndQuery>() {
            _ if !template.starts_with('/') => Err(AskError::Shape),
            _ if !template.contains(KEY) => Err(AskError::NoKey),
            Ok(path) if path.as_str() == example => Ok(Self { template: template.into(), names }),
            _ => Err(AskError::Path),
        }
    }
}

/// The names in braces, but for the key's; `None` where the braces do not hold a name each.
fn places(template: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut left = template;
    while let Some((before, after)) = left.split_once('{') {
        let (name, rest) = after.split_once('}')?;
        if before.contains('}') || !is_name(name) {
            return None;
        }
        names.push(name.to_owned());
        left = rest;
    }
    names.retain(|name| name != "key");
    (!left.contains('}')).then_some(names)
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GET {}", self.template)
    }
}

/// All but unreserved characters are encoded: a value must not reach out of its place.
fn encoded(value: &[u8]) -> String {
    percent_encode(value, &RESERVED).to_string()
}

/// The segments of a path, percent-encoded anew one by one: `{*rest}` holds several.
fn encoded_segments(path: &str) -> String {
    let segments = path.split('/').map(|segment| {
        let segment: Vec<u8> = percent_decode_str(segment).collect();
        encoded(&segment)
    });
    segments.collect::<Vec<_>>().join("/")
}

const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const KEY: &str = "{key}";

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
    /// Put the name of a place between the braces.
    #[error("in a question, braces hold {{key}} or a place of the route's `match`, such as {{id}}")]
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
        let target = ask.target("../x?y#z&", &[]).unwrap();
        assert_eq!(target, "/charges/..%2Fx%3Fy%23z%26?again=..%2Fx%3Fy%23z%26");
        // Servers go up one level at `..`, encoded or not: that is a question about something else.
        assert_eq!(ask.target("..", &[]), None);
        assert_eq!(ask.target(".", &[]), None);
        let ask: Ask = "GET /charges?key={key}".parse().unwrap();
        assert!(ask.target("..", &[]).is_some());
    }

    #[test]
    fn a_place_of_the_path_is_encoded_anew() {
        let ask: Ask = "GET /a/{a}/c?b={b}&k={key}".parse().unwrap();
        let target = ask.target("k{a}", &[("a", "x%2fy%41"), ("b", "1&2")]).unwrap();
        assert_eq!(target, "/a/x%2FyA/c?b=1%262&k=k%7Ba%7D");
        assert_eq!(ask.target("k", &[("a", ".."), ("b", "")]), None);
        // Several segments stay several.
        let ask: Ask = "GET /status/{rest}?key={key}".parse().unwrap();
        let target = ask.target("k", &[("rest", "a/b%2Fc")]).unwrap();
        assert_eq!(target, "/status/a/b%2Fc?key=k");
        assert_eq!(ask.target("k", &[("rest", "a/../c")]), None);
        let ask: Ask = "GET /a/{a}/c?b={b}&k={key}".parse().unwrap();
        assert_eq!(ask.unknown_place(["a"].into_iter()), Some("b"));
        assert_eq!(ask.unknown_place(["a", "b"].into_iter()), None);
    }

    #[test]
    fn a_question_is_written_back() {
        let ask: Ask = "GET /charges/{key}?again={key}".parse().unwrap();
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
            ("GET /{key}/{}", AskError::Braces),
            ("GET /{key}/{id", AskError::Braces),
            ("GET /{key}/id}", AskError::Braces),
            ("GET /{key}/{{id}}", AskError::Braces),
            ("GET /{key}#x", AskError::Path),
            ("GET /{key} x", AskError::Path),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Ask>(), Err(error), "{text}");
        }
    }
}
