//! A response as it is kept for replay.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// What a retry is answered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The status of the first answer.
    pub status: StatusCode,
    /// Its end-to-end headers, less those that are never replayed.
    pub headers: HeaderMap,
    /// Its body, or why there is none.
    pub body: Kept,
}

impl Response {
    /// The same outcome without what a retry would need to see it.
    pub fn without_body(&self, why: NotKept) -> Self {
        Self { status: self.status, headers: HeaderMap::new(), body: Kept::No(why) }
    }

    /// Bytes of the body that is kept.
    pub fn body_bytes(&self) -> usize {
        match &self.body {
            Kept::Bytes { body, .. } | Kept::Sealed(body) => body.len(),
            Kept::No(_) => 0,
        }
    }

    /// Bytes of the headers and the body that are kept.
    #[cfg(feature = "run")]
    pub(crate) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        headers.sum::<usize>() + self.body_bytes()
    }
}

/// A body that is kept, or the reason why it is not.
#[derive(Clone, PartialEq)]
pub enum Kept {
    /// Every byte of it.
    Bytes {
        /// The body.
        body: Bytes,
        /// What followed it; gRPC has its status there.
        trailers: Option<HeaderMap>,
    },
    /// Nothing: a retry gets 410, or what is at the `Location` now; never a second execution.
    No(NotKept),
    /// Headers, body and trailers together, as `store::sealed` seals them. Whoever has no key for them has nothing: a
    /// retry gets 410.
    Sealed(Bytes),
}

impl Kept {
    /// The bytes that a store keeps beside the head of the response.
    pub fn stored(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes { body, .. } | Self::Sealed(body) => Some(body),
            Self::No(_) => None,
        }
    }
}

/// A body may hold anything, so only its length is shown.
impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes { body, .. } => write!(f, "Bytes({})", body.len()),
            Self::No(why) => write!(f, "No({why:?})"),
            Self::Sealed(sealed) => write!(f, "Sealed({})", sealed.len()),
        }
    }
}

/// Why a body is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// It is larger than `response_bytes_max`.
    TooLarge,
    /// It is a stream: of events, or of bytes whose end cannot be told from a break of the connection.
    Streamed,
    /// The policy keeps no bodies of this route.
    Secret,
    /// The store would not take it.
    Refused,
    /// The policy keeps the `Location` instead, which is among the headers: what is there is fetched for each retry.
    Location,
    /// It was kept, and somebody had it erased.
    Erased,
    /// It is kept, and no key that this process has opens it: the key is lost, or the bytes were changed.
    Unopened,
}
