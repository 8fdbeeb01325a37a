//! A request, read whole before anything is claimed.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap};
use http::request::Parts;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::Body;
use super::client_uri::Sent;
use super::layer::Rules;
use super::problem::Problem;
use crate::fingerprint::{Digest, Fingerprint, Subject};
use crate::key::Key;
use crate::once::{BodyRoom, Once};
use crate::policy::Policy;
use crate::scope::{OperationId, Principal, Scope, operation_id};
use crate::store::BoxError;

/// A body that is here whole; its room is given back with it.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    trailers: Option<HeaderMap>,
    room: BodyRoom,
}

impl Whole {
    /// The body, and its room: to be kept for as long as someone works on the body.
    pub(super) fn into_parts(self) -> (Body, BodyRoom) {
        (Body::kept(self.bytes, self.trailers), self.room)
    }

    pub(super) fn into_body(self) -> Body {
        Body::kept(self.bytes, self.trailers)
    }
}

/// Reads the whole body, within the route's bound, the process's, and a bound of time.
pub(super) async fn read<B>(
    once: &Once,
    rules: &Rules,
    head: &Parts,
    body: B,
) -> Result<Whole, Problem>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let whole = timeout(BODY_WAIT, read_whole(once, rules, head, body)).await;
    whole.unwrap_or_else(|_| Err(Problem::request_too_slow()))
}

async fn read_whole<B>(once: &Once, rules: &Rules, head: &Parts, body: B) -> Result<Whole, Problem>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if declared_bytes(head).is_some_and(|bytes| bytes > rules.policy.request_bytes_max as u64) {
        return Err(Problem::request_too_large());
    }
    let mut room = once.inner.room.body();
    let mut bytes = BytesMut::new();
    let mut trailers = None;
    let mut body = std::pin::pin!(body);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::request_incomplete())?;
        match frame.into_data() {
            Ok(data) => append(&mut bytes, &data, &mut room, rules)?,
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok(Whole { bytes: bytes.freeze(), trailers, room })
}

fn declared_bytes(head: &Parts) -> Option<u64> {
    head.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn append(
    bytes: &mut BytesMut,
    data: &Bytes,
    room: &mut BodyRoom,
    rules: &Rules,
) -> Result<(), Problem> {
    if bytes.len() + data.len() > rules.policy.request_bytes_max {
        return Err(Problem::request_too_large());
    }
    if !room.grow(data.len()) {
        rules.counters.overloaded.one();
        return Err(Problem::overloaded());
    }
    bytes.extend_from_slice(data);
    Ok(())
}

/// What the request is compared by, given the digest of its bytes.
pub(super) fn fingerprint(policy: &Policy, head: &Parts, body: &Whole, raw: Digest) -> Fingerprint {
    let sent = Sent::of(head);
    Fingerprint::with_raw(raw, &policy.fingerprint, &subject(head, &sent, body))
}

/// The digest of the request's bytes.
pub(super) fn raw_digest(head: &Parts, body: &Whole) -> Digest {
    Fingerprint::raw_digest(&subject(head, &Sent::of(head), body))
}

/// The parts of the request that count.
fn subject<'a>(head: &'a Parts, sent: &'a Sent<'_>, body: &'a Whole) -> Subject<'a> {
    Subject {
        method: head.method.as_str(),
        path: &sent.path,
        query: sent.query.as_deref(),
        headers: &head.headers,
        body: &body.bytes,
    }
}

/// Which operation the request is about.
pub(super) fn id(
    once: &Once,
    policy: &Policy,
    head: &Parts,
    who: &Principal,
    key: &Key,
) -> OperationId {
    let host = head.uri.host().or_else(|| head.headers.get(header::HOST)?.to_str().ok());
    let scope = Scope {
        principal: who,
        host: host.unwrap_or_default(),
        method: head.method.as_str(),
        path: &Sent::of(head).path,
        headers: &head.headers,
    };
    operation_id(once.inner.secret.as_ref(), &policy.scope, &scope, key)
}

/// How long a client may take to send a body that is kept whole.
const BODY_WAIT: Duration = Duration::from_secs(60);
