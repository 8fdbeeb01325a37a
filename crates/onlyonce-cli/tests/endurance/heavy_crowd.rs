//! A crowd with one key: one execution, and memory within its bound.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proof::client::Answer;
use proof::tier::tiered;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use crate::fleet::Fleet;
use crate::gateway::Gateway;
use crate::upstream::{GATED, Upstream};
use crate::{until, within};

const KEY: &str = "the-one-key-of-the-crowd";
const CONNECTIONS: usize = 100;
const BODY_BYTES: usize = 300;
const MEMORY_KIB_MAX: usize = 256 * 1024;

// R55, R58, R60; threat A12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_from_ten_thousand_at_once_executes_once_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let policy = "in_flight = \"wait\"\nwait = \"60s\"";
    let gateway = Gateway::with_policy(folder.path(), upstream.address, policy).await;
    let crowd = Crowd::gather(&[&gateway], KEY, tiered(10_000)).await;
    crowd.all_at_once(&[&gateway]).await;
    upstream.open_gate();
    let answers = crowd.answers().await;
    judge(&answers, &upstream.executions(KEY));
    let memory_kib = gateway.memory_kib_max();
    println!("{} MiB resident at most", memory_kib / 1024);
    assert!(memory_kib < MEMORY_KIB_MAX, "{memory_kib} KiB");
}

// threats C11, I1: the store sees nodes, not callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_two_gateways_costs_postgres_no_more_for_its_size() {
    let fleet = Fleet::start("in_flight = \"wait\"\nwait = \"60s\"").await;
    let mut statements = Vec::new();
    for size in [tiered(1_000), tiered(10_000)] {
        let key = format!("{KEY}-{size}");
        let gateways: Vec<_> = fleet.gateways.iter().collect();
        fleet.upstream.close_gate();
        let crowd = Crowd::gather(&gateways, &key, size).await;
        fleet.forget_statements();
        crowd.all_at_once(&gateways).await;
        fleet.upstream.open_gate();
        let answers = crowd.answers().await;
        judge(&answers, &fleet.upstream.executions(&key));
        statements.push(fleet.statements());
        println!("{size} callers of one key at two gateways: {} statements", fleet.statements());
    }
    assert!(statements[0] > 0, "nothing was counted");
    assert!(statements[1] < 4 * statements[0].max(100), "{statements:?}");
}

/// Requests whose last byte is held back until all are there.
struct Crowd {
    size: usize,
    begun: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    last_byte: watch::Sender<bool>,
    requests: JoinSet<Answer>,
}

impl Crowd {
    async fn gather(gateways: &[&Gateway], key: &str, size: usize) -> Self {
        let mut crowd = Self {
            size,
            begun: Arc::default(),
            answered: Arc::default(),
            last_byte: watch::Sender::new(false),
            requests: JoinSet::new(),
        };
        let mut connections = Vec::new();
        for gateway in gateways.iter().cycle().take(CONNECTIONS) {
            connections.push(connect(gateway).await);
        }
        for n in 0..size {
            crowd.join(connections[n % CONNECTIONS].clone(), key.to_owned());
        }
        crowd
    }

    fn join(&mut self, connection: SendRequest<Held>, key: String) {
        let body = Held::new(self.begun.clone(), self.last_byte.subscribe());
        let answered = self.answered.clone();
        self.requests.spawn(async move {
            let answer = send(connection, &key, body).await;
            answered.fetch_add(1, Ordering::SeqCst);
            answer
        });
    }

    /// Lets all of them go at once; returns when each but the owner was answered or waits.
    async fn all_at_once(&self, gateways: &[&Gateway]) {
        let is_begun = || self.begun.load(Ordering::SeqCst) == self.size;
        until("all requests to begin", is_begun).await;
        assert_eq!(self.answered.load(Ordering::SeqCst), 0);
        self.last_byte.send_replace(true);
        within("the crowd to settle", async {
            while self.answered.load(Ordering::SeqCst) + waiting(gateways).await < self.size - 1 {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    async fn answers(self) -> Vec<Answer> {
        within("all answers", self.requests.join_all()).await
    }
}

async fn waiting(gateways: &[&Gateway]) -> usize {
    let mut waiting = 0;
    for gateway in gateways {
        waiting += gateway.metric("onlyonce_waiting ").await;
    }
    waiting
}

fn judge(answers: &[Answer], executions: &[Bytes]) {
    assert_eq!(executions.len(), 1);
    let (mut fresh, mut replays, mut refused) = (0, 0, 0);
    for answer in answers {
        match (answer.status.as_u16(), answer.problem().as_deref()) {
            (201, None) => {
                assert_eq!(answer.body, executions[0]);
                *if answer.is_replay() { &mut replays } else { &mut fresh } += 1;
            }
            (409, Some("idempotency_in_progress")) => {
                assert!(answer.headers.contains_key("retry-after"));
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    println!("{} requests: {fresh} fresh, {replays} replays, {refused} refused", answers.len());
    assert_eq!(fresh, 1);
    assert!(replays > 0, "nobody waited");
}

async fn connect(gateway: &Gateway) -> SendRequest<Held> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = shaken.await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn send(mut connection: SendRequest<Held>, key: &str, body: Held) -> Answer {
    let request = Request::post(format!("http://crowd.test{GATED}"))
        .header("idempotency-key", key)
        .header("content-type", "text/plain")
        .body(body)
        .unwrap();
    let response = connection.send_request(request).await.unwrap();
    let (head, body) = response.into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

/// A body whose last byte waits.
struct Held {
    left: usize,
    begun: Arc<AtomicUsize>,
    last_byte: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Held {
    fn new(begun: Arc<AtomicUsize>, mut last_byte: watch::Receiver<bool>) -> Self {
        Self {
            left: BODY_BYTES,
            begun,
            last_byte: Box::pin(async move {
                last_byte.wait_for(|may| *may).await.unwrap();
            }),
        }
    }

    fn take(&mut self, bytes: usize) -> Option<Result<Frame<Bytes>, std::convert::Infallible>> {
        self.left -= bytes;
        Some(Ok(Frame::data(Bytes::from(vec![b'x'; bytes]))))
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.left {
            BODY_BYTES => {
                self.begun.fetch_add(1, Ordering::SeqCst);
                Poll::Ready(self.take(BODY_BYTES - 1))
            }
            0 => Poll::Ready(None),
            left => {
                ready!(self.last_byte.as_mut().poll(cx));
                Poll::Ready(self.take(left))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}
