//! The answer of the handler, read whole, and what it means for the transaction.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::{IntoResponseParts, ResponseParts};
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode, response};
use http_body_util::BodyExt;

use crate::http::capture::{is_event_stream, is_short, keeps};
use crate::http::{Body, headers, kept_headers};
use crate::policy::{Keeps, Policy};
use crate::problem::Problem;
use crate::record::{self, Kept};
use crate::store::BoxError;
use crate::transaction::Reply;

/// How the transaction of a request ends. The answer of the handler decides:
///
/// | answer | the writes | the answer | the key |
/// |---|---|---|---|
/// | 2xx, 3xx: `Complete` | committed | kept | used |
/// | 4xx that the policy stores (402, 404, 422 …): `Decline` | undone | kept | used |
/// | what the policy calls not executed (401, 403, 407, 408, 421, 425, 429; 409 with `Retry-After`): `RollBack` | undone | sent once | free |
/// | 5xx, a panic, a timeout: `RollBack` | undone | sent once | free |
///
/// The header `Idempotency-Store` counts as in the ordinary layer, but for `store` on a 5xx: that is `RollBack` all the same.
///
/// A handler overrules it by a part of its response:
///
/// ```
/// use axum::{http::StatusCode, response::IntoResponse};
/// use onlyonce::transaction::Ending;
///
/// // The attempt is counted in the database, and the refusal is kept.
/// async fn wrong_pin() -> impl IntoResponse {
///     (StatusCode::PAYMENT_REQUIRED, Ending::Complete, "wrong PIN")
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Commit the writes, and keep the answer.
    Complete,
    /// Undo the writes, and keep the answer.
    Decline,
    /// Undo the writes, and keep nothing: a retry runs.
    RollBack,
}

impl Ending {
    fn of(head: &response::Parts, policy: &Policy) -> Self {
        if let Some(ending) = head.extensions.get::<Self>() {
            return *ending;
        }
        match keeps(head, policy) {
            Keeps::Release | Keeps::Unknown => Self::RollBack,
            Keeps::Store if head.status.is_server_error() => Self::RollBack,
            Keeps::Store if head.status.is_client_error() => Self::Decline,
            Keeps::Store => Self::Complete,
        }
    }
}

impl IntoResponseParts for Ending {
    type Error = Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Infallible> {
        response.extensions_mut().insert(self);
        Ok(response)
    }
}

/// An answer that was read whole.
#[derive(Debug)]
pub(super) struct Answer {
    head: response::Parts,
    body: Bytes,
    pub(super) ending: Ending,
}

impl Answer {
    /// Reads the whole of `response`, which a retry must be able to get.
    pub(super) async fn read<A>(response: Response<A>, policy: &Policy) -> Result<Self, NoAnswer>
    where
        A: http_body::Body<Data = Bytes>,
        A::Error: Into<BoxError>,
    {
        let (mut head, body) = response.into_parts();
        let ending = Ending::of(&head, policy);
        headers::for_first_caller(&mut head.headers);
        if is_event_stream(&head.headers) {
            return Err(NoAnswer::NotKept("The response is a stream of events.".to_owned()));
        }
        let body = whole(body, policy.response_bytes_max()).await?;
        match is_short(&head, body.len()) {
            true => Err(NoAnswer::Failed("the body has another length than it says".into())),
            false => Ok(Self { head, body, ending }),
        }
    }

    /// The part of it that is kept.
    pub(super) fn reply(&self) -> Reply {
        Reply {
            status: self.head.status,
            headers: kept_headers(&self.head.headers),
            body: self.body.clone(),
        }
    }

    /// The answer for the first caller.
    pub(super) fn into_response(self) -> Response<Body> {
        Response::from_parts(self.head, Body::from(self.body))
    }
}

async fn whole<A>(body: A, bytes_max: usize) -> Result<Bytes, NoAnswer>
where
    A: http_body::Body<Data = Bytes>,
    A::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| NoAnswer::Failed(error.into()))?.into_data() else {
            return Err(NoAnswer::NotKept("The response has trailers.".to_owned()));
        };
        if bytes.len() + data.len() > bytes_max {
            let why = format!(
                "The response is larger than the {bytes_max} bytes that this route keeps (response_bytes_max)."
            );
            return Err(NoAnswer::NotKept(why));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// Why there is no answer that could be committed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("the handler failed")]
    Failed(#[source] BoxError),
    #[error("the handler panicked")]
    Panicked,
    #[error("the handler took too long")]
    TimedOut,
    /// A whole sentence.
    #[error("the answer cannot be kept: {0}")]
    NotKept(String),
}

impl NoAnswer {
    pub(super) fn problem(&self) -> Problem {
        let failed = StatusCode::INTERNAL_SERVER_ERROR;
        match self {
            Self::Failed(_) | Self::Panicked => {
                Problem::rolled_back(failed, "The service failed before it answered.")
            }
            Self::TimedOut => {
                let why = "The service did not answer in time.";
                Problem::rolled_back(StatusCode::GATEWAY_TIMEOUT, why)
            }
            Self::NotKept(why) => Problem::rolled_back(failed, why),
        }
    }
}

/// A kept answer, as the layer replays it.
pub(super) fn stored(reply: Reply) -> Arc<record::Response> {
    let body = Kept::Bytes { body: reply.body, trailers: None };
    Arc::new(record::Response { status: reply.status, headers: reply.headers, body })
}
