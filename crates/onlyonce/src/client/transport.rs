//! How one attempt is sent: the contract between the retry loop and an HTTP implementation.

use bytes::Bytes;
use http::{Request, StatusCode};

use super::answer::Answer;
use crate::store::BoxError;

/// Sends one request once, and reads the whole answer.
///
/// It must not retry by itself after the first byte has left, follow no redirect, and call a failure
/// [`NotSent`](Reach::NotSent) only where it can prove it: a wrong proof is a wrong outcome.
pub trait Transport: Send {
    /// Sends `request`; the answer has at most `answer_bytes_max` of body.
    fn send(
        &mut self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> impl Future<Output = Result<Answer, TransportError>> + Send;
}

/// Why there is no whole answer.
#[derive(Debug, thiserror::Error)]
#[error("{reach}")]
pub struct TransportError {
    /// How far the request came.
    pub reach: Reach,
    /// What went wrong.
    #[source]
    pub source: BoxError,
}

impl TransportError {
    /// A failure that came this far.
    pub fn new(reach: Reach, source: impl Into<BoxError>) -> Self {
        Self { reach, source: source.into() }
    }
}

/// How far a request came that has no whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reach {
    /// Proved: the server has not acted on it, and will not.
    #[error("the request was not sent")]
    NotSent,
    /// It may have been executed.
    #[error("no complete answer came")]
    MaybeSent,
    /// It was answered with this status, and the body is larger than the limit.
    #[error("the answer ({0}) is larger than the limit")]
    TooLarge(StatusCode),
    /// It cannot be sent at all: the request itself is wrong.
    #[error("the request cannot be sent")]
    Unusable,
}
