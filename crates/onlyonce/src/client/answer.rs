//! A whole answer: status, headers and every byte of the body.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};

/// An answer that arrived whole.
#[derive(Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Its trailers, where the transport passes them on.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// An answer without headers and body.
    pub fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Bytes::new(), trailers: None }
    }

    /// Whether the server says that this answer is from its record of an earlier attempt.
    pub fn is_replay(&self) -> bool {
        REPLAY_HEADERS.iter().any(|name| self.header(name) == Some("true"))
    }

    /// A header's text, if it is there and is text.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text; what is not UTF-8 is shown as replacement characters.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body read as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// Without headers and body, which may contain secrets.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("is_replay", &self.is_replay())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// The header of a replay: ours and Stripe's, and two other names in use.
const REPLAY_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("idempotent-replayed"),
    HeaderName::from_static("idempotency-replayed"),
    HeaderName::from_static("idempotency-replay"),
];
