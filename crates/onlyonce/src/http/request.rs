//! A request, read whole before anything is claimed.

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
use http::header::HeaderValue;
use http::header::{self, HeaderMap};
use http::request::Parts;
use http::uri::Authority;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::client_uri::Sent;
use super::layer::Rules;
use super::{Body, json_rpc};
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
use crate::fingerprint::is_method_override;
use crate::fingerprint::{Digest, Fingerprint, FingerprintMode, Subject};
use crate::key::Key;
use crate::once::{BodyRoom, Room};
use crate::policy::{Paths, Policy};
use crate::problem::Problem;
use crate::scope::{
    OperationId, Principal, Scope, ScopePart, Secret, Spelling, folded_path, is_plain_path,
    operation_id, spelling,
};
use crate::store::BoxError;

/// A body that was read whole, with its memory permit.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    trailers: Option<HeaderMap>,
    room: BodyRoom,
}

impl Whole {
    /// The body, and its permit, to be kept while the handler works on the body.
    pub(crate) fn into_parts(self) -> (Body, BodyRoom) {
        (Body::kept(self.bytes, self.trailers), self.room)
    }

    /// A copy of the body, for an attempt of several.
    #[cfg(feature = "sqlx")]
    pub(crate) fn body(&self) -> Body {
        Body::kept(self.bytes.clone(), self.trailers.clone())
    }

    /// The body, which keeps its permit while any of its bytes are in use.
    pub(crate) fn into_body(self) -> Body {
        Body::kept(roomed(self.bytes, self.room), self.trailers)
    }
}

/// Reads the whole body, within the size limit of the route, the memory limit of the process, and a time limit. Then
/// the layer's verifier, if it has one, judges the request, before anything is claimed.
pub(super) async fn read<B>(rules: &Rules, head: &Parts, body: B) -> Result<Whole, Problem>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let read = read_whole(&rules.policy, &rules.once.inner.room, head, body).await;
    let whole = read.map_err(|stop| {
        match stop {
            Stop::NoRoom(_) => rules.counters.overloaded.one(),
            Stop::TooLarge(_) | Stop::Broken(_) | Stop::TooSlow => rules.counters.refused.one(),
        }
        stop.problem(&rules.policy)
    })?;
    rules.verify(head, &whole).inspect_err(|_| rules.counters.refused.one())?;
    Ok(whole)
}

/// The same, without counting.
pub(crate) async fn read_whole<B>(
    policy: &Policy,
    room: &Room,
    head: &Parts,
    body: B,
) -> Result<Whole, Stop>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut begun = Begun::default();
    begun.fill(policy, room, head, pin!(body)).await?;
    Ok(begun.whole())
}

/// The part of a body that has arrived.
#[derive(Debug, Default)]
pub(super) struct Begun {
    bytes: BytesMut,
    trailers: Option<HeaderMap>,
    room: BodyRoom,
}

/// Why a body was not read to its end, with the bytes that had arrived and were not taken.
#[derive(Debug)]
pub(crate) enum Stop {
    TooLarge(Bytes),
    NoRoom(Bytes),
    Broken(BoxError),
    TooSlow,
}

impl Stop {
    /// What is wrong with the request.
    pub(crate) fn problem(&self, policy: &Policy) -> Problem {
        match self {
            Self::TooLarge(_) => Problem::request_too_large(policy),
            Self::Broken(_) => Problem::request_incomplete(),
            Self::TooSlow => Problem::request_too_slow(),
            Self::NoRoom(_) => Problem::overloaded(),
        }
    }
}

impl Begun {
    pub(super) fn whole(self) -> Whole {
        Whole { bytes: self.bytes.freeze(), trailers: self.trailers, room: self.room }
    }

    /// Reads `body` to its end. If that fails, the bytes that have arrived are not lost.
    pub(super) async fn fill<B>(
        &mut self,
        policy: &Policy,
        room: &Room,
        head: &Parts,
        body: Pin<&mut B>,
    ) -> Result<(), Stop>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let declared = declared_bytes(head);
        if declared.is_some_and(|bytes| bytes > policy.request_bytes_max() as u64) {
            return Err(Stop::TooLarge(Bytes::new()));
        }
        in_time(self.fill_up(policy, room, body)).await?;
        match declared {
            Some(bytes) if bytes != self.bytes.len() as u64 => {
                Err(Stop::Broken("the body has another length than it was said to have".into()))
            }
            _ => Ok(()),
        }
    }

    async fn fill_up<B>(
        &mut self,
        policy: &Policy,
        room: &Room,
        mut body: Pin<&mut B>,
    ) -> Result<(), Stop>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let bytes_max = policy.request_bytes_max();
        while let Some(frame) = body.frame().await {
            match frame.map_err(|error| Stop::Broken(error.into()))?.into_data() {
                Ok(data) if self.bytes.len() + data.len() > bytes_max => {
                    return Err(Stop::TooLarge(data));
                }
                Ok(data) if !room.grow(&mut self.room, data.len()) => {
                    return Err(Stop::NoRoom(data));
                }
                Ok(data) => self.bytes.extend_from_slice(&data),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(())
    }

    /// The body as if it had not been read: the part that was read, then the rest.
    pub(super) fn resume<B>(self, stop: Stop, rest: Pin<Box<B>>) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let begun = roomed(self.bytes.freeze(), self.room);
        match stop {
            Stop::TooLarge(data) | Stop::NoRoom(data) => Body::resumed([begun, data], None, rest),
            Stop::Broken(error) => Body::resumed([begun, Bytes::new()], Some(error), rest),
            Stop::TooSlow => Body::resumed([begun, Bytes::new()], None, rest),
        }
    }
}

/// Bounds the time that a body takes. Most bodies arrive with their heads, and need no timer.
async fn in_time(filling: impl Future<Output = Result<(), Stop>>) -> Result<(), Stop> {
    let mut filling = pin!(filling);
    match filling.as_mut().now_or_never() {
        Some(filled) => filled,
        None => Box::pin(timeout(BODY_WAIT, filling)).await.unwrap_or(Err(Stop::TooSlow)),
    }
}

/// The same bytes; their memory permit is given back when they are no longer in use.
fn roomed(bytes: Bytes, room: BodyRoom) -> Bytes {
    struct Roomed {
        bytes: Bytes,
        _room: BodyRoom,
    }
    impl AsRef<[u8]> for Roomed {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Bytes::from_owner(Roomed { bytes, _room: room })
}

pub(super) fn declared_bytes(head: &Parts) -> Option<u64> {
    head.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The fingerprint of the request, given the digest of its bytes. The spelling of its path does not count.
pub(crate) fn fingerprint(policy: &Policy, head: &Parts, body: &Whole, raw: Digest) -> Fingerprint {
    let sent = Sent::of(head);
    let asked = subject(head, &sent, body);
    let made = match counted(policy, asked.path) {
        Some(path) => {
            let folded = Subject { path: &path, ..asked };
            let meaning = Fingerprint::raw_digest(&folded);
            Fingerprint { raw, ..Fingerprint::with_raw(meaning, policy.fingerprint(), &folded) }
        }
        None => Fingerprint::with_raw(raw, policy.fingerprint(), &asked),
    };
    match policy.is_json_rpc() && json_rpc::is_notification(&body.bytes) {
        true => made.apart(b"onlyonce notification\0"),
        false => made,
    }
}

/// Refuses a path that is not in plain form, where the service may read it as another one.
pub(crate) fn plain(policy: &Policy, head: &Parts) -> Result<(), Problem> {
    match policy.paths() {
        Paths::Plain if !is_plain_path(&Sent::of(head).path) => {
            Err(Problem::request_ambiguous(NOT_PLAIN))
        }
        Paths::Plain | Paths::Literal => Ok(()),
    }
}

/// The path that counts in the place of this one, if the service may take spellings of it for one another.
fn counted(policy: &Policy, path: &str) -> Option<String> {
    match (policy.paths(), folded_path(path)) {
        (Paths::Plain, Cow::Owned(folded)) => Some(folded),
        (Paths::Plain, Cow::Borrowed(_)) | (Paths::Literal, _) => None,
    }
}

/// The same, as a record has it: under the secret of the deployment, and with the spelling of the path.
pub(crate) fn kept_fingerprint(
    policy: &Policy,
    secret: Option<&Secret>,
    request: (&Parts, &Whole),
    raw: Digest,
) -> Fingerprint {
    let (head, body) = request;
    fingerprint(policy, head, body, raw).kept(secret).spelled(spelled(policy, secret, head))
}

/// Where neither the id nor the fingerprint has the path, its spelling does not count either.
fn spelled(policy: &Policy, secret: Option<&Secret>, head: &Parts) -> Spelling {
    let is_uncounted = policy.fingerprint().mode == FingerprintMode::None
        && !policy.scope().contains(&ScopePart::Path);
    match policy.paths() {
        Paths::Plain if !is_uncounted => spelling(secret, &Sent::of(head).path),
        Paths::Plain | Paths::Literal => Spelling::default(),
    }
}

/// Whether the path of the request is spelled in a way of its own.
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub(crate) fn is_respelled(policy: &Policy, head: &Parts) -> bool {
    spelled(policy, None, head) != Spelling::default()
}

/// The fingerprint of a request whose body was read as a value, which is written as `json` here.
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub(crate) fn value_fingerprint(policy: &Policy, head: &Parts, json: &[u8]) -> Fingerprint {
    let sent = Sent::of(head);
    let json_type = HeaderValue::from_static("application/json");
    let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, json_type)]);
    for (name, value) in head.headers.iter().filter(|(name, _)| is_method_override(name)) {
        headers.append(name, value.clone());
    }
    let folded = counted(policy, &sent.path);
    let path = folded.as_deref().unwrap_or(&sent.path);
    let (method, query) = (head.method.as_str(), sent.query.as_deref());
    let subject = Subject { method, path, query, headers: &headers, body: json };
    Fingerprint::of(policy.fingerprint(), &subject).spelled(spelled(policy, None, head))
}

/// The digest of the request's bytes.
pub(crate) fn raw_digest(head: &Parts, body: &Whole) -> Digest {
    Fingerprint::raw_digest(&subject(head, &Sent::of(head), body))
}

/// The parts of the request that the fingerprint is made of.
fn subject<'a>(head: &'a Parts, sent: &'a Sent<'_>, body: &'a Whole) -> Subject<'a> {
    Subject {
        method: head.method.as_str(),
        path: &sent.path,
        query: sent.query.as_deref(),
        headers: &head.headers,
        body: &body.bytes,
    }
}

/// The id of the operation that the request is about.
pub(super) fn id(
    rules: &Rules,
    head: &Parts,
    body: &[u8],
    who: &Principal,
    key: &Key,
) -> OperationId {
    id_by(&rules.policy, rules.once.inner.secret.as_ref(), (head, body), who, key)
}

/// The same, by the scope of this policy.
pub(crate) fn id_by(
    policy: &Policy,
    secret: Option<&Secret>,
    request: (&Parts, &[u8]),
    who: &Principal,
    key: &Key,
) -> OperationId {
    with_scope(request, who, |scope| operation_id(secret, &policy.id_scope(), scope, key))
}

/// What `read` makes of the request's scope.
pub(super) fn with_scope<T>(
    (head, body): (&Parts, &[u8]),
    who: &Principal,
    read: impl FnOnce(&Scope<'_>) -> T,
) -> T {
    let host = head.uri.host().or_else(|| host_field(head));
    read(&Scope {
        principal: who,
        host: host.unwrap_or_default(),
        method: head.method.as_str(),
        path: &Sent::of(head).path,
        headers: &head.headers,
        body,
    })
}

/// What tells operations of one route apart, besides their caller, key and fingerprint.
pub(super) fn place(rules: &Rules, head: &Parts, who: &Principal) -> u64 {
    let changed = &rules.once.inner.changed_principals;
    with_scope((head, b""), who, |scope| changed.place(&rules.policy, scope))
}

/// Three words with spaces between: how the request is sent, the `Host` that the inner service sees, and the path.
pub(super) fn target(head: &Parts, sent_as: &str) -> String {
    let host = host_field(head).or_else(|| head.uri.authority().map(Authority::as_str));
    format!("{sent_as} {} {}", host.unwrap_or_default(), Sent::of(head).path)
}

pub(super) fn host_field(head: &Parts) -> Option<&str> {
    head.headers.get(header::HOST)?.to_str().ok()
}

const NOT_PLAIN: &str = "The path of the request can be read as another path: it has an empty segment, a dot segment, an encoded \
                         slash, a backslash or a control character. Send it without.";
/// How long a client may take to send a body that is kept whole.
const BODY_WAIT: Duration = Duration::from_secs(60);
