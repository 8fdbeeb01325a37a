//! What a server tells about itself at `/.well-known/idempotency`: how long it keeps keys, and what became
//! of an operation.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::Value;

use super::answer::Answer;
use super::operation::Operation;
use super::redirect::{origin, with_path};
use super::retries::Retries;
use super::transport::{Reach, Transport, TransportError};
use crate::code::WELL_KNOWN;

/// The documents of the servers, by origin.
#[derive(Debug, Default)]
pub(crate) struct Windows(Mutex<HashMap<Origin, Told>>);

type Origin = (String, String, u16);

#[derive(Clone, Debug)]
struct Told {
    asked_at: Duration,
    /// The routes in their order, each with how long its keys are kept. `None`: the server has no such document.
    routes: Option<Vec<(String, Duration)>>,
}

/// How long a server keeps a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// So long, as configured or as the server's document says.
    Told(Duration),
    /// The server answers, and its document does not say.
    Usual,
    /// The server did not answer, so nothing is known.
    NoAnswer,
}

impl Windows {
    fn known(&self) -> MutexGuard<'_, HashMap<Origin, Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, origin: &Origin, now: Duration) -> Option<Told> {
        let told = self.known().get(origin).cloned()?;
        (now.saturating_sub(told.asked_at) < FRESH).then_some(told)
    }

    fn note(&self, origin: Origin, told: Told) {
        let mut known = self.known();
        if known.len() >= ORIGINS_MAX {
            known.clear();
        }
        known.insert(origin, told);
    }
}

/// How long the server keeps the operation's key: the configured time, or the time in the server's document.
pub(crate) async fn window<T: Transport>(
    retries: &Retries,
    transport: &mut T,
    operation: &Operation,
) -> Window {
    if let Some(window) = retries.settings.window {
        return Window::Told(window);
    }
    let Some(told) = told(retries, transport, operation).await else { return Window::NoAnswer };
    let routes = told.routes.unwrap_or_default();
    let mut of_route = routes
        .into_iter()
        .filter(|(matching, _)| matches(matching, &operation.method, operation.uri.path()));
    of_route.next().map_or(Window::Usual, |(_, window)| Window::Told(window))
}

/// The server's document; `None` if the server does not answer. An answer is cached for a while. A missing answer is
/// not: the next operation that needs the document asks again.
async fn told<T: Transport>(
    retries: &Retries,
    transport: &mut T,
    operation: &Operation,
) -> Option<Told> {
    let origin = origin(&operation.uri)?;
    let asked_at = retries.environment.boot();
    if let Some(told) = retries.windows.told(&origin, asked_at) {
        return Some(told);
    }
    let question = operation.question(&retries.settings, with_path(&operation.uri, WELL_KNOWN)?);
    let answer = ask(retries, transport, question).await?;
    let told = Told { asked_at, routes: routes(&answer) };
    retries.windows.note(origin, told.clone());
    Some(told)
}

/// `None` if the answer is not the document.
fn routes(answer: &Answer) -> Option<Vec<(String, Duration)>> {
    if answer.status != StatusCode::OK {
        return None;
    }
    let document: Value = answer.json().ok()?;
    let routes = document["routes"].as_array()?.iter().filter_map(|route| {
        let ttl = Duration::from_secs(route["ttl"].as_u64()?);
        Some((route["match"].as_str()?.to_owned(), ttl))
    });
    Some(routes.collect())
}

/// What the server knows of an operation, without sending it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Unknown,
    Completed(StatusCode),
}

/// Asks about the operation, if the server has the document.
pub(crate) async fn look_up<T: Transport>(
    retries: &Retries,
    transport: &mut T,
    operation: &Operation,
) -> Option<State> {
    if retries.settings.window.is_some() {
        return None;
    }
    told(retries, transport, operation).await?.routes?;
    let (method, path) = (&operation.method, escaped(operation.uri.path()));
    let uri =
        with_path(&operation.uri, &format!("{WELL_KNOWN}/operation?method={method}&path={path}"))?;
    let answer = ask(retries, transport, operation.question(&retries.settings, uri)).await?;
    let document: Value = (answer.status == StatusCode::OK).then(|| answer.json().ok())??;
    match document["state"].as_str()? {
        "running" => Some(State::Running),
        "unknown" => Some(State::Unknown),
        "completed" => {
            let status = u16::try_from(document["status"].as_u64()?).ok()?;
            StatusCode::from_u16(status).ok().map(State::Completed)
        }
        _ => None,
    }
}

/// Sends one question, with a short timeout. A 5xx, or an answer that asks to come again, is no answer.
async fn ask<T: Transport>(
    retries: &Retries,
    transport: &mut T,
    request: Request<Bytes>,
) -> Option<Answer> {
    let heard = tokio::select! {
        biased;
        heard = transport.send(request, DOCUMENT_BYTES_MAX) => heard,
        () = retries.environment.sleep(ASK_WAIT) => return None,
    };
    let answer = match heard {
        Ok(answer) => answer,
        // A body above the limit is not the document.
        Err(TransportError { reach: Reach::TooLarge(status), .. }) => Answer::new(status),
        Err(_) => return None,
    };
    let is_silent = matches!(answer.status.as_u16(), 408 | 425 | 429 | 500..);
    (!is_silent).then_some(answer)
}

/// Whether a route such as `POST,PUT /v1/{name}/{*rest}` is for this request.
fn matches(route: &str, method: &Method, path: &str) -> bool {
    let (methods, pattern) = match route.find('/') {
        Some(slash) => (route[..slash].trim(), Some(&route[slash..])),
        None => (route.trim(), None),
    };
    let has_method =
        methods == "*" || methods.split(',').any(|name| name.trim() == method.as_str());
    has_method && pattern.is_none_or(|pattern| matches_path(pattern, path))
}

fn matches_path(pattern: &str, path: &str) -> bool {
    let mut left = path.split('/');
    for segment in pattern.split('/') {
        match left.next() {
            Some(found) if segment.starts_with("{*") => return !found.is_empty(),
            Some(found) if segment.starts_with('{') && !found.is_empty() => {}
            Some(found) if segment == found => {}
            _ => return false,
        }
    }
    left.next().is_none()
}

fn escaped(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                text.push(byte.into());
            }
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// How long most services keep keys, for a server that does not say.
pub(crate) const WINDOW_USUAL: Duration = Duration::from_secs(24 * 3600);
/// How long a document is cached, and how long a server without one is not asked again.
const FRESH: Duration = Duration::from_secs(300);
const ORIGINS_MAX: usize = 64;
const ASK_WAIT: Duration = Duration::from_secs(2);
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_match_as_the_gateway_matches_them() {
        let is = |route, path| matches(route, &Method::POST, path);
        assert!(is("POST /v1/charges", "/v1/charges"));
        assert!(!is("POST /v1/charges", "/v1/charges/"));
        assert!(!is("PUT /v1/charges", "/v1/charges"));
        assert!(is("PUT,POST /v1/{name}", "/v1/charges"));
        assert!(!is("* /v1/{name}", "/v1/"));
        assert!(is("* /v1/{*rest}", "/v1/a/b"));
        assert!(!is("* /v1/{*rest}", "/v1/"));
        assert!(is("*", "/anything"));
    }

    #[test]
    fn a_path_is_escaped_whole() {
        assert_eq!(escaped("/a b/%41?&="), "/a%20b/%2541%3F%26%3D");
    }
}
