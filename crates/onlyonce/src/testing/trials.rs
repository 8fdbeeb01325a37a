//! The trials, one after the other.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_service::Service;

use super::report::{Finding, Report, Trial, What};
use crate::store::BoxError;

pub(super) struct Trials<S, R, E> {
    service: S,
    request: R,
    effects: E,
    /// The effects after the last operation, and in which trial it was.
    counted: Option<(Trial, u64)>,
    /// Whether any operation had an effect.
    has_effect: bool,
    /// The answer to the last operation.
    last: String,
    pub(super) report: Report,
}

impl<S, A, R, B, E> Trials<S, R, E>
where
    S: Service<Request<Body>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
    R: Fn(&str) -> Request<B>,
    B: Into<Bytes>,
    E: AsyncFn() -> u64,
{
    pub(super) fn new(service: S, request: R, effects: E) -> Self {
        Self {
            service,
            request,
            effects,
            counted: None,
            has_effect: false,
            last: String::new(),
            report: Report::default(),
        }
    }

    pub(super) async fn run(&mut self) {
        self.in_sequence(Trial::InSequence).await;
        for _ in 0..AT_ONCE_ROUNDS {
            self.at_once().await;
        }
        for polls in 1..=POLLS_MAX {
            if !self.hang_up(polls).await {
                break;
            }
        }
        self.broken_body().await;
    }

    /// The next execution was told to fail.
    pub(super) async fn failure(&mut self) {
        self.in_sequence(Trial::Failure).await;
    }

    /// What all trials tell together. A service that only refuses would pass each of them.
    pub(super) async fn ended(mut self) -> Report {
        self.count_late().await;
        if !self.has_effect && self.report.is_once() {
            let last = std::mem::take(&mut self.last);
            self.find(Trial::InSequence, What::NoEffect { last });
        }
        self.report
    }

    async fn in_sequence(&mut self, trial: Trial) {
        let (key, before) = self.next().await;
        self.settled(trial, &key, before, None).await;
    }

    async fn at_once(&mut self) {
        let (key, before) = self.next().await;
        // None is sent before all of them are ready to be: on a busy machine the first would be answered before the last is sent.
        let start = Arc::new(Barrier::new(AT_ONCE));
        let mut sending = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (start, service, request) = (start.clone(), self.service.clone(), self.whole(&key));
            sending.spawn(async move {
                start.wait().await;
                send(service, request).await
            });
        }
        let answers = sending.join_all().await;
        let first = self.settled(Trial::AtOnce, &key, before, None).await;
        let Some(first) = first else { return };
        let other = answers.into_iter().find(|answer| !answer.is_refusal() && *answer != first);
        if let Some(later) = other {
            self.find(Trial::AtOnce, What::Differs { first: first.told(), later: later.told() });
        }
    }

    /// Hangs up after so many polls; false if the request was answered before.
    async fn hang_up(&mut self, polls: usize) -> bool {
        let (key, before) = self.next().await;
        let hung_up = {
            let request = self.whole(&key);
            let mut sending = pin!(send(self.service.clone(), request));
            let mut polled = 0;
            poll_fn(|cx| match sending.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(false),
                Poll::Pending => {
                    polled += 1;
                    if polled == polls { Poll::Ready(true) } else { Poll::Pending }
                }
            })
            .await
        };
        self.settled(Trial::HangUp, &key, before, hung_up.then_some(polls)).await;
        hung_up
    }

    async fn broken_body(&mut self) {
        let (key, before) = self.next().await;
        let (mut head, body) = (self.request)(&key).into_parts();
        let body: Bytes = body.into();
        if body.len() < 2 {
            return;
        }
        head.headers.insert(header::CONTENT_LENGTH, body.len().into());
        let half = body.slice(..body.len() / 2);
        let frames = [Ok(half), Err(BoxError::from("the client has hung up"))];
        let broken = Body::from_stream(stream::iter(frames));
        self.report.requests += 1;
        send(self.service.clone(), Request::from_parts(head, broken)).await;
        self.settled(Trial::BrokenBody, &key, before, None).await;
    }

    /// Retries until there is an answer, and twice more: each gets the same, and there is one effect.
    async fn settled(
        &mut self,
        trial: Trial,
        key: &str,
        before: u64,
        at_poll: Option<usize>,
    ) -> Option<Answer> {
        let first = self.answered(key).await;
        if first.is_refusal() {
            self.counted = Some((trial, (self.effects)().await));
            self.find(trial, What::NoAnswer { last: first.told(), at_poll });
            return None;
        }
        for _ in 0..RETRIES_AFTER {
            let later = self.answered(key).await;
            if later != first {
                self.find(trial, What::Differs { first: first.told(), later: later.told() });
                break;
            }
        }
        let counted = (self.effects)().await;
        self.counted = Some((trial, counted));
        let effects = counted.saturating_sub(before);
        self.has_effect |= effects > 0;
        self.last = first.told();
        match effects {
            0 if first.status.is_success() => {
                self.find(trial, What::Lost { status: first.status, at_poll });
            }
            0 | 1 => {}
            effects => self.find(trial, What::Repeated { effects, at_poll }),
        }
        Some(first)
    }

    /// The answer to a client that retries refusals, within its patience.
    async fn answered(&mut self, key: &str) -> Answer {
        let mut pause = PAUSE_MIN;
        for _ in 0..RETRIES_MAX {
            let request = self.whole(key);
            let answer = send(self.service.clone(), request).await;
            if !answer.is_refusal() {
                return answer;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        let request = self.whole(key);
        send(self.service.clone(), request).await
    }

    /// The effects until now. Those that came since the last operation was counted are that one's.
    async fn count_late(&mut self) -> u64 {
        let effects = (self.effects)().await;
        if let Some((trial, counted)) = self.counted.take()
            && effects > counted
        {
            self.find(trial, What::Late { effects: effects - counted });
        }
        effects
    }

    /// A key that was not used before, and the effects until now.
    async fn next(&mut self) -> (String, u64) {
        let before = self.count_late().await;
        self.report.operations += 1;
        let mut random = [0; 16];
        // Without randomness the keys of two runs would meet in a database that both use.
        getrandom::fill(&mut random).expect("the system gives random bytes");
        let key = format!("twice-{}", crate::hex::encode(&random));
        (key, before)
    }

    fn whole(&mut self, key: &str) -> Request<Body> {
        self.report.requests += 1;
        (self.request)(key).map(|body| Body::from(body.into()))
    }

    fn find(&mut self, trial: Trial, what: What) {
        let operation = self.report.operations;
        self.report.findings.push(Finding { operation, trial, what });
    }
}

/// What a client compares.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: StatusCode,
    location: Option<String>,
    media_type: Option<String>,
    body: Bytes,
}

impl Answer {
    /// Whether a client sends again: there is no answer yet.
    fn is_refusal(&self) -> bool {
        let busy = [StatusCode::CONFLICT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
        self.status.is_server_error() || busy.contains(&self.status)
    }

    fn told(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let beginning: String = text.chars().take(TOLD_CHARACTERS_MAX).collect();
        format!("{} {beginning:?}", self.status.as_u16())
    }
}

async fn send<S, A>(mut service: S, request: Request<Body>) -> Answer
where
    S: Service<Request<Body>, Response = Response<A>>,
    S::Error: Into<BoxError>,
    A: http_body::Body<Data = Bytes>,
    A::Error: Into<BoxError>,
{
    match sent(&mut service, request).await {
        Ok(answer) => answer,
        Err(error) => Answer {
            status: StatusCode::BAD_GATEWAY,
            location: None,
            media_type: None,
            body: error.to_string().into(),
        },
    }
}

async fn sent<S, A>(service: &mut S, request: Request<Body>) -> Result<Answer, BoxError>
where
    S: Service<Request<Body>, Response = Response<A>>,
    S::Error: Into<BoxError>,
    A: http_body::Body<Data = Bytes>,
    A::Error: Into<BoxError>,
{
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    let (head, body) = service.call(request).await.map_err(Into::into)?.into_parts();
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    let text =
        |name| head.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into());
    Ok(Answer {
        status: head.status,
        location: text(header::LOCATION),
        media_type: text(header::CONTENT_TYPE),
        body,
    })
}

/// Duplicates at the same time, and how often that is tried.
const AT_ONCE: usize = 16;
const AT_ONCE_ROUNDS: usize = 4;
/// After how many polls of a request a client hangs up at most.
const POLLS_MAX: usize = 64;
/// Retries after the first answer, each of which must get the same.
const RETRIES_AFTER: usize = 2;
/// How often a client sends again after a refusal: about twenty seconds.
const RETRIES_MAX: usize = 100;
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);
const TOLD_CHARACTERS_MAX: usize = 60;
