//! The client as a tower layer, for hyper and tonic: the inner service sends one attempt, this layer retries it.
//!
//! 1. A request whose method is POST or PATCH, or that carries a key, is an operation. Its key is the one in
//!    its header, else the [`Key`] among its extensions, else a new one; two that differ are an error. All
//!    others pass once.
//! 2. Request and answer are read whole, within bounds, because each attempt sends the same bytes. Wrap calls
//!    that stream with something else.
//! 3. The answer has a [`Told`] among its extensions. Where there is no answer at all the error is a
//!    [`NoAnswer`].
//!
//! ```
//! # fn layer() {
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use onlyonce::client::{OperationLayer, Retries};
//!
//! // How the service below wants its bodies; for tonic: `|bytes| tonic::body::Body::new(Full::new(bytes))`.
//! let layer = OperationLayer::new(Retries::new(), Full::<Bytes>::new);
//! # let _ = layer;
//! # }
//! ```

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use tower_layer::Layer;
use tower_service::Service;

use super::answer::Answer;
use super::decide::Course;
use super::diary::Diary;
use super::operation::Operation;
use super::outcome::{SendError, SendOutcome};
use super::perform::Run;
use super::retries::Retries;
use super::transport::{Reach, Transport, TransportError};
use super::wire::collected;
use crate::key::{Key, KeyError, KeyRules};
use crate::store::BoxError;

/// Makes one operation of each request.
#[derive(Clone)]
pub struct OperationLayer<F> {
    retries: Retries,
    body: F,
}

impl<F> OperationLayer<F> {
    /// With this retry policy; `body` makes a body for the inner service from bytes.
    pub fn new(retries: Retries, body: F) -> Self {
        Self { retries, body }
    }
}

impl<F> fmt::Debug for OperationLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationLayer").field("retries", &self.retries).finish_non_exhaustive()
    }
}

impl<S, F: Clone> Layer<S> for OperationLayer<F> {
    type Service = Operations<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        Operations { inner, retries: self.retries.clone(), body: self.body.clone() }
    }
}

/// The service that [`OperationLayer`] makes.
#[derive(Clone)]
pub struct Operations<S, F> {
    inner: S,
    retries: Retries,
    body: F,
}

impl<S, F> fmt::Debug for Operations<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").field("retries", &self.retries).finish_non_exhaustive()
    }
}

impl<S, F, In, Out, Answered> Service<Request<In>> for Operations<S, F>
where
    S: Service<Request<Out>, Response = Response<Answered>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    F: Fn(Bytes) -> Out + Clone + Send + 'static,
    In: Body + Send + 'static,
    In::Data: Send,
    In::Error: Into<BoxError>,
    Out: Send,
    Answered: Body + Send,
    Answered::Data: Send,
    Answered::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        // `poll_ready` was called on this service, not on its clone: call this one, and keep the clone.
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
        let below = Below { inner, body: self.body.clone() };
        let retries = self.retries.clone();
        Box::pin(async move { send(retries, below, request).await })
    }
}

async fn send<S, F, In, Out, Answered>(
    retries: Retries,
    mut below: Below<S, F>,
    request: Request<In>,
) -> Result<Response<AnswerBody>, BoxError>
where
    S: Service<Request<Out>, Response = Response<Answered>> + Clone + Send,
    S::Future: Send,
    S::Error: Into<BoxError>,
    F: Fn(Bytes) -> Out + Send,
    In: Body,
    In::Error: Into<BoxError>,
    Out: Send,
    Answered: Body + Send,
    Answered::Data: Send,
    Answered::Error: Into<BoxError>,
{
    let (head, body) = request.into_parts();
    let body = Limited::new(body, REQUEST_BYTES_MAX).collect().await?.to_bytes();
    let made = head.extensions.get::<Key>().cloned();
    let Some(key) = key(&head.method, &head.headers, made, &retries)? else {
        let request = Request::from_parts(head, body);
        let answer = below.send(request, retries.settings.answer_bytes_max).await?;
        return Ok(response(answer, None));
    };
    let operation = Operation {
        key: Some(key.clone()),
        method: head.method,
        uri: head.uri,
        headers: head.headers,
        body,
    };
    let end = perform(&retries, &mut below, operation).await;
    let (answer, told) = answered(key, end)?;
    Ok(response(answer, Some(told)))
}

/// Sends the operation without questions: a layer can only send the requests that it is given.
pub(crate) async fn perform<T: Transport>(
    retries: &Retries,
    transport: &mut T,
    operation: Operation,
) -> Result<SendOutcome, SendError> {
    let environment = &retries.environment;
    let ends_at = environment.boot().saturating_add(retries.settings.deadline);
    let course = Course::new(environment.wall(), ends_at);
    let run = Run { retries, diary: Diary::default(), asks: false, is_resumed: false };
    run.perform(transport, operation, course).await
}

/// The key of a request, if it is an operation.
pub(crate) fn key(
    method: &Method,
    headers: &HeaderMap,
    made: Option<Key>,
    retries: &Retries,
) -> Result<Option<Key>, KeyError> {
    let lines = headers.get_all(&retries.settings.key_header);
    let sent =
        Key::from_field_lines(lines.iter().map(|line| line.as_bytes()), &KeyRules::default())?;
    if let (Some(sent), Some(made)) = (&sent, &made)
        && sent != made
    {
        return Err(KeyError::Disagreement);
    }
    let is_operation = method == Method::POST || method == Method::PATCH;
    Ok(sent.or(made).or_else(|| is_operation.then(Key::random)))
}

/// How an operation ended, because the answer alone does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The operation's key, which the layer may have made: sending the operation again takes the same one.
    pub key: Key,
    /// `fresh`, `replayed`, `rejected`, `unknown` or `not_through`.
    pub outcome: &'static str,
    /// What is known, and what to do next.
    pub advice: &'static str,
}

/// An operation that ended without an answer to show. What to do next is in its outcome.
#[derive(Debug, thiserror::Error)]
#[error("the operation has no answer: {0:?}")]
pub struct NoAnswer(pub Box<Result<SendOutcome, SendError>>);

/// The answer to pass on, or why there is none.
pub(crate) fn answered(
    key: Key,
    end: Result<SendOutcome, SendError>,
) -> Result<(Answer, Told), NoAnswer> {
    match end {
        Ok(outcome) => match outcome.answer().cloned() {
            Some(answer) => {
                Ok((answer, Told { key, outcome: outcome.name(), advice: outcome.advice() }))
            }
            None => Err(NoAnswer(Box::new(Ok(outcome)))),
        },
        Err(error) => {
            let told = Told { key, outcome: "not_through", advice: error.advice() };
            match error {
                SendError::NotThrough { last: Some(answer), .. } => Ok((*answer, told)),
                error => Err(NoAnswer(Box::new(Err(error)))),
            }
        }
    }
}

fn response(answer: Answer, told: Option<Told>) -> Response<AnswerBody> {
    let body = AnswerBody { bytes: Some(answer.body), trailers: answer.trailers };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    if let Some(told) = told {
        response.extensions_mut().insert(told);
    }
    response
}

/// The service below as a transport.
struct Below<S, F> {
    inner: S,
    body: F,
}

impl<S, F, Out, Answered> Transport for Below<S, F>
where
    S: Service<Request<Out>, Response = Response<Answered>> + Clone + Send,
    S::Future: Send,
    S::Error: Into<BoxError>,
    F: Fn(Bytes) -> Out + Send,
    Out: Send,
    Answered: Body + Send,
    Answered::Data: Send,
    Answered::Error: Into<BoxError>,
{
    async fn send(
        &mut self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> Result<Answer, TransportError> {
        let ready = std::future::poll_fn(|cx| self.inner.poll_ready(cx)).await;
        ready.map_err(|error| TransportError::new(Reach::NotSent, error))?;
        let request = request.map(&self.body);
        // An error of an unknown service may come after the first byte was sent.
        let response = self.inner.call(request).await;
        let response = response.map_err(|error| TransportError::new(Reach::MaybeSent, error))?;
        let (head, body) = response.into_parts();
        collected(head, body, answer_bytes_max).await
    }
}

/// The whole body of an answer, and its trailers.
#[derive(Clone, Default)]
pub struct AnswerBody {
    bytes: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(bytes) = self.bytes.take().filter(|bytes| !bytes.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.as_ref().is_none_or(Bytes::is_empty) && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerBody(..)")
    }
}

const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
