//! Calls the inner service, and decides what is kept of its answer.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, response};
use http_body::Frame;
use http_body_util::BodyExt;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tower_service::Service;

use super::body::Fed;
use super::request::Whole;
use super::{
    Body, IDEMPOTENCY_STORE, NotSent, UntilClose, deadline, grpc, headers, json_rpc, problem,
};
use crate::body::Kind;
use crate::key::Key;
use crate::once::{Ask, Attempt, Inner, Once, Room, Verdict, Worked};
use crate::planted::{Planted, planted};
use crate::policy::{Keep, Keeps, Policy};
use crate::problem::{failed, timed_out};
use crate::record::{self, Kept, NotKept};
use crate::scope::OperationId;
use crate::store::BoxError;

/// The work of one attempt: calls `inner` and waits for its whole answer, within the route's time.
pub(super) fn call<S, A>(
    mut inner: S,
    (mut head, key): (Parts, Key),
    body: Whole,
    ask: Arc<Ask>,
    once: Arc<Inner>,
) -> impl FnOnce(u32) -> Pin<Box<dyn Future<Output = Worked<Response<Body>>> + Send>> + Send
where
    S: Service<Request<Body>, Response = Response<A>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    move |attempt| {
        Box::pin(async move {
            let (id, policy) = (ask.id, &ask.policy);
            headers::for_inner(&mut head.headers, attempt);
            if let Some(left) = ask.left(once.clock.boot()) {
                deadline::pass_on(policy.deadline_from(), &mut head.headers, left);
            }
            head.extensions.insert(Attempt { number: attempt, id });
            head.extensions.insert(key);
            head.extensions.insert(Claimed { once: once.clone(), id });
            let (body, _room) = body.into_parts();
            let called = Instant::now();
            let answering = async {
                let response = inner.call(Request::from_parts(head, body)).await;
                match response {
                    Ok(response) => capture(response, &ask, &once.room, called).await,
                    Err(_) => no_answer(failed(policy)),
                }
            };
            // A panic and an error mean the same to the caller: the request was sent, and there is no whole answer.
            let answering = AssertUnwindSafe(answering).catch_unwind();
            match timeout(policy.upstream_timeout(), answering).await {
                Ok(Ok(worked)) => worked,
                Ok(Err(_)) => no_answer(failed(policy)),
                Err(_) => no_answer(timed_out(policy)),
            }
        })
    }
}

/// Among the extensions of a request while it is executed, for a layer further in.
#[derive(Clone)]
pub(super) struct Claimed {
    once: Arc<Inner>,
    id: OperationId,
}

impl Claimed {
    /// Whether another layer of this engine executes the operation already. Another engine may have the same id
    /// in another store.
    pub(super) fn is_executed(head: &Parts, once: &Once, id: OperationId) -> bool {
        let claimed = head.extensions.get::<Self>();
        claimed.is_some_and(|outer| Arc::ptr_eq(&outer.once, &once.inner) && outer.id == id)
    }
}

/// The result of a request that was sent and has no whole answer.
fn no_answer(told: record::Response) -> Worked<Response<Body>> {
    let fresh = problem::own(&told);
    Worked::new(Verdict::Unknown(Arc::new(told)), fresh)
}

async fn capture<A>(
    response: Response<A>,
    ask: &Ask,
    room: &Room,
    called: Instant,
) -> Worked<Response<Body>>
where
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    let policy = &*ask.policy;
    let (mut head, body) = response.into_parts();
    let (said, keeps) = (said(&head), judged(&head, ask));
    headers::for_first_caller(&mut head.headers);
    let is_stream = is_event_stream(&head.headers);
    if is_stream && !policy.is_json_rpc() {
        return streamed(head, BytesMut::new(), Box::pin(body), keeps, NotKept::Streamed, policy);
    }
    let mut body = Box::pin(body);
    let largest = expected_bytes(&*body, policy);
    let mut questions = is_stream.then(json_rpc::Questions::default);
    let mut held = None;
    let mut bytes = BytesMut::new();
    let mut trailers = None;
    loop {
        match body.frame().await {
            None if is_short(&head, bytes.len()) || lacks_grpc_status(&head, trailers.as_ref()) => {
                return no_answer(failed(policy));
            }
            None => {
                let by_grpc = || grpc_keeps(&head, &bytes, trailers.as_ref(), policy);
                let keeps = said.or_else(by_grpc).unwrap_or(keeps);
                if said.is_none() && keeps == Keeps::Store && lacks_answer(&head, &bytes, policy) {
                    return unanswered(head, bytes.freeze(), trailers, policy);
                }
                return Worked {
                    room: held,
                    ..whole(head, bytes.freeze(), trailers, keeps, policy)
                };
            }
            Some(Err(_)) if planted(Planted::CutAnswerKept) => {
                return whole(head, bytes.freeze(), trailers, keeps, policy);
            }
            Some(Err(_)) => return no_answer(failed(policy)),
            Some(Ok(frame)) => match frame.into_data() {
                Err(frame) => trailers = frame.into_trailers().ok(),
                Ok(data) => bytes.extend_from_slice(&data),
            },
        }
        if questions.as_mut().is_some_and(|questions| questions.have_come(&bytes)) {
            return streamed(head, bytes, body, keeps, NotKept::Streamed, policy);
        }
        if bytes.len() > policy.response_bytes_max() {
            return streamed(head, bytes, body, keeps, NotKept::TooLarge, policy);
        }
        if bytes.len() > SMALL_BYTES_MAX && held.is_none() {
            // The operation was executed, and must not become unknown at its timeout because our memory limit is reached.
            let wait = policy.upstream_timeout().saturating_sub(called.elapsed()) / 2;
            match timeout(wait, room.answer(largest)).await {
                Ok(room) => held = room,
                Err(_) => return streamed(head, bytes, body, keeps, NotKept::TooLarge, policy),
            }
            bytes.reserve(largest.saturating_sub(bytes.len()));
        }
    }
}

/// Whether the body has another length than the head says. A 204 or 304 may state a length and has no body.
pub(crate) fn is_short(head: &response::Parts, bytes: usize) -> bool {
    let told = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let told = told.and_then(|value| value.parse::<usize>().ok());
    let has_body = !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    has_body && told.is_some_and(|told| told != bytes)
}

/// Whether this is a gRPC answer without its status, which is in the trailers, or in the head of an answer that has
/// only trailers. A proxy that lost its backend may end the stream in this way.
fn lacks_grpc_status(head: &response::Parts, trailers: Option<&HeaderMap>) -> bool {
    let has_status = |headers: &HeaderMap| headers.contains_key("grpc-status");
    let is_ended = has_status(&head.headers) || trailers.is_some_and(has_status);
    // gRPC-Web has its trailers in its body.
    grpc::is_grpc(&head.headers) && head.status == StatusCode::OK && !is_ended
}

/// Whether this is an event stream of JSON-RPC that ended before its answer: the service may still be at work.
fn lacks_answer(head: &response::Parts, bytes: &[u8], policy: &Policy) -> bool {
    policy.is_json_rpc() && is_event_stream(&head.headers) && !json_rpc::has_answer(bytes)
}

/// The first caller gets what came, and may ask the service for the rest.
fn unanswered(
    head: response::Parts,
    bytes: Bytes,
    trailers: Option<HeaderMap>,
    policy: &Policy,
) -> Worked<Response<Body>> {
    let fresh = Response::from_parts(head, Body::kept(bytes, trailers));
    Worked::new(Verdict::Unknown(Arc::new(failed(policy))), fresh)
}

/// How many bytes of the answer may be read before it is known to be whole or too large.
fn expected_bytes(body: &impl http_body::Body, policy: &Policy) -> usize {
    let told = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    told.unwrap_or(usize::MAX).min(policy.response_bytes_max())
}

/// What the answer means for the record: by the extension `NotSent`, else by the header `Idempotency-Store`, else by
/// its status.
pub(crate) fn keeps(head: &response::Parts, policy: &Policy) -> Keeps {
    said(head).unwrap_or_else(|| policy.keeps(head.status, &head.headers))
}

/// The same, for a request that may have a deadline: a 408 to it may be that of a timeout which the deadline has set off
/// while the inner service was at work, so that it means as much as a 504.
fn judged(head: &response::Parts, ask: &Ask) -> Keeps {
    match head.status {
        StatusCode::REQUEST_TIMEOUT if ask.ends_at.is_some() => said(head)
            .unwrap_or_else(|| ask.policy.keeps(StatusCode::GATEWAY_TIMEOUT, &head.headers)),
        _ => keeps(head, &ask.policy),
    }
}

/// What the inner service itself says of its answer.
fn said(head: &response::Parts) -> Option<Keeps> {
    if head.extensions.get::<NotSent>().is_some() {
        return Some(Keeps::Release);
    }
    match head.headers.get(IDEMPOTENCY_STORE)?.as_bytes() {
        b"store" => Some(Keeps::Store),
        b"release" => Some(Keeps::Release),
        b"unknown" => Some(Keeps::Unknown),
        _ => None,
    }
}

/// What the status of a gRPC answer means, which is not that of HTTP. A call that has sent a message was at work: no status
/// after it says that nothing was executed.
fn grpc_keeps(
    head: &response::Parts,
    messages: &[u8],
    trailers: Option<&HeaderMap>,
    policy: &Policy,
) -> Option<Keeps> {
    if !grpc::is_grpc(&head.headers) {
        return None;
    }
    let fields = [Some(&head.headers), trailers];
    let status = fields.into_iter().flatten().find_map(grpc::http_status)?;
    match policy.keeps(status, &head.headers) {
        Keeps::Release if !messages.is_empty() => Some(Keeps::Unknown),
        keeps => Some(keeps),
    }
}

pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    media.trim().eq_ignore_ascii_case("text/event-stream")
}

fn whole(
    head: response::Parts,
    bytes: Bytes,
    trailers: Option<HeaderMap>,
    keeps: Keeps,
    policy: &Policy,
) -> Worked<Response<Body>> {
    let kept = record::Response {
        status: head.status,
        headers: headers::kept(&head.headers),
        body: Kept::Bytes {
            body: bytes.clone(),
            trailers: trailers.as_ref().map(headers::kept_trailers),
        },
    };
    let kept = match may_be_cut(&head, &bytes) {
        true => without_body(&head, NotKept::Streamed, policy),
        false => kept,
    };
    let verdict = match head.extensions.get::<NotSent>() {
        Some(NotSent) => Verdict::NotSent,
        None => verdict(keeps, kept),
    };
    let fresh = Response::from_parts(head, Body::kept(bytes, trailers));
    Worked::new(verdict, fresh)
}

/// An answer whose body is not kept. Where the policy keeps the `Location`, that is all that a retry needs.
fn without_body(head: &response::Parts, why: NotKept, policy: &Policy) -> record::Response {
    let is_kept = policy.keep() == Keep::Location;
    let location = is_kept.then(|| headers::kept(&head.headers).remove(header::LOCATION)).flatten();
    let headers = location.map(|location| (header::LOCATION, location)).into_iter().collect();
    record::Response { status: head.status, headers, body: Kept::No(why) }
}

/// Whether the body may have been cut off without notice. A JSON object or array that is closed is whole.
fn may_be_cut(head: &response::Parts, bytes: &[u8]) -> bool {
    if head.extensions.get::<UntilClose>().is_none() {
        return false;
    }
    let media_type = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = media_type.is_some_and(|media_type| {
        // A stream of JSON values may end after any of them.
        Kind::of(media_type) == Kind::Json && !media_type.to_ascii_lowercase().starts_with(STREAM)
    });
    let is_closed = matches!(bytes.trim_ascii_start(), [b'{' | b'[', ..])
        && serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    !(is_json && is_closed)
}

fn verdict(keeps: Keeps, kept: record::Response) -> Verdict {
    match keeps {
        Keeps::Store => Verdict::Store(Arc::new(kept)),
        Keeps::Release => Verdict::NotExecuted,
        Keeps::Unknown => Verdict::Unknown(Arc::new(kept)),
    }
}

/// An answer that is not kept: the operation is settled now, then its task streams the answer.
fn streamed<A>(
    head: response::Parts,
    begun: BytesMut,
    rest: Pin<Box<A>>,
    keeps: Keeps,
    why: NotKept,
    policy: &Policy,
) -> Worked<Response<Body>>
where
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    let kept = without_body(&head, why, policy);
    let (feed, fed) = mpsc::channel(FRAMES_MAX);
    let idle = policy.upstream_timeout();
    let drains = why == NotKept::TooLarge;
    let keeps = if planted(Planted::LargeAnswerReleases) { Keeps::Release } else { keeps };
    let after = Box::pin(pump(begun.freeze(), rest, feed, idle, drains));
    let fresh = Response::from_parts(head, Body::fed(fed));
    Worked { after: Some(after), ..Worked::new(verdict(keeps, kept), fresh) }
}

type Feed = mpsc::Sender<Fed>;

/// Passes the stream on. If the caller leaves, an event stream ends; a large answer is read for a while longer, because
/// the inner service may still be working on it.
async fn pump<A>(begun: Bytes, mut rest: Pin<Box<A>>, feed: Feed, idle: Duration, drains: bool)
where
    A: http_body::Body<Data = Bytes>,
    A::Error: Into<BoxError>,
{
    let is_over = pass_on(begun, &mut rest, feed, idle).await;
    if drains && !is_over {
        let drained = async { while let Ok(Some(Ok(_))) = timeout(idle, rest.frame()).await {} };
        // Bounded: an answer without a reader must not take up its place for ever.
        let _ = timeout(DRAIN_WAIT, drained).await;
    }
}

/// Passes frames on, and returns whether the stream ended; false if the reader left or was too slow.
async fn pass_on<A>(begun: Bytes, rest: &mut Pin<Box<A>>, feed: Feed, idle: Duration) -> bool
where
    A: http_body::Body<Data = Bytes>,
    A::Error: Into<BoxError>,
{
    if !begun.is_empty() && feed.send(Fed::Frame(Frame::data(begun))).await.is_err() {
        return false;
    }
    loop {
        let fed = match timeout(idle, rest.frame()).await {
            Ok(None) => Fed::End,
            Ok(Some(Ok(frame))) => Fed::Frame(frame),
            Ok(Some(Err(error))) => Fed::Broken(error.into()),
            Err(elapsed) => Fed::Broken(elapsed.into()),
        };
        let is_last = !matches!(fed, Fed::Frame(_));
        let is_heard = matches!(timeout(idle, feed.send(fed)).await, Ok(Ok(())));
        if is_last || !is_heard {
            return is_last;
        }
    }
}

const STREAM: &[u8] = b"application/stream+json";
/// An answer up to this size needs no memory permit.
const SMALL_BYTES_MAX: usize = 64 * 1024;
/// How long the rest of a large answer is read after its reader left.
const DRAIN_WAIT: Duration = Duration::from_secs(60);
/// How many frames of a stream are buffered for a slow reader.
const FRAMES_MAX: usize = 16;
