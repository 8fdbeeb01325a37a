//! Stopping with requests in flight: what ends in time is completed, the rest is unknown and never sent again.

use std::time::Duration;

use proof::client::{self, Answer, Connection, SendError};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::caller::{Caller, Leave};
use crate::gateway::Gateway;
use crate::upstream::{GATED, QUICK, Upstream};
use crate::{BODY, until, within};

const IN_FLIGHT: usize = 20;
/// Well within the time for which a gateway drains.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Longer than a gateway with nothing under way takes to end.
const A_WHILE: Duration = Duration::from_secs(2);

/// Requests that the upstream has and does not answer yet.
struct InFlight {
    folder: TempDir,
    upstream: Upstream,
    gateway: Gateway,
    answers: JoinSet<(String, Result<Answer, SendError>)>,
}

impl InFlight {
    async fn new(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(folder.path(), upstream.address).await;
        let mut answers = JoinSet::new();
        for key in keys(count) {
            let address = gateway.address;
            answers.spawn(async move {
                let answer = client::post(address, GATED, &key, BODY).await;
                (key, answer)
            });
        }
        until("the executions", || upstream.executing() == count).await;
        Self { folder, upstream, gateway, answers }
    }

    async fn terminate(&self) {
        self.gateway.terminate();
        until("the gateway to say that it stops", || {
            self.gateway.errors().contains("onlyonce: stopping")
        })
        .await;
    }

    async fn restart(&mut self) {
        self.gateway = Gateway::start(self.folder.path(), self.upstream.address).await;
    }

    async fn post(&self, key: &str) -> Answer {
        let answer = client::post(self.gateway.address, GATED, key, BODY);
        within("an answer", answer).await.unwrap()
    }

    /// Held, at once and after the upstream has done its part, and not sent again.
    async fn are_unknown(&self) {
        for key in keys(IN_FLIGHT) {
            let retry = self.post(&key).await;
            assert_eq!(retry.status, 409, "{key}");
            assert_eq!(retry.problem().as_deref(), Some("idempotency_outcome_unknown"));
            assert!(retry.headers.contains_key("retry-after"));
            assert_eq!(self.upstream.executions(&key).len(), 1, "{key}");
        }
    }
}

fn keys(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("operation-{n:016x}"))
}

// R80, R104; threat A13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ends_while_the_gateway_drains_is_answered_completed_and_replayed() {
    let mut t = InFlight::new(IN_FLIGHT).await;
    t.terminate().await;
    until_refused(&t.gateway).await;
    assert!(!t.gateway.has_ended(), "it waits for what is under way");
    t.upstream.open_gate();
    let mut first = Vec::new();
    while let Some(answered) = within("the answers", t.answers.join_next()).await {
        let (key, answer) = answered.unwrap();
        first.push((key, answer.unwrap()));
    }
    assert_eq!(t.gateway.ended().await.code(), Some(0), "{}", t.gateway.errors());
    t.restart().await;
    for (key, answer) in first {
        let again = t.post(&key).await;
        assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, false), "{key}");
        assert!(again.is_replay(), "{key}");
        assert_eq!((again.status, again.body), (answer.status, answer.body.clone()), "{key}");
        assert_eq!(t.upstream.executions(&key), [answer.body], "{key}");
    }
}

/// One operation that the upstream executes, and whose client has left.
async fn left_alone(how: Leave) -> (InFlight, String) {
    let t = InFlight::new(0).await;
    let key = keys(1).next().unwrap();
    let caller = Caller::send(&t.gateway, GATED, &key).await;
    until("the execution", || t.upstream.executing() == 1).await;
    caller.hang_up(&t.gateway, how).await;
    t.terminate().await;
    until_refused(&t.gateway).await;
    (t, key)
}

// R80, R90, R104; threats A12, A13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_whose_client_left_ends_while_the_gateway_drains() {
    for how in [Leave::Close, Leave::Reset] {
        let (mut t, key) = left_alone(how).await;
        tokio::time::sleep(A_WHILE).await;
        assert!(!t.gateway.has_ended(), "it waits for what is under way: {}", t.gateway.errors());
        assert_eq!(t.upstream.executing(), 1, "the upstream was left");
        t.upstream.open_gate();
        assert_eq!(t.gateway.ended().await.code(), Some(0), "{}", t.gateway.errors());
        let told = t.gateway.errors();
        assert!(!told.contains("had not ended") && told.ends_with("onlyonce: stopped\n"), "{told}");
        t.restart().await;
        let retry = t.post(&key).await;
        assert!(retry.status == 201 && retry.is_replay(), "{retry:?}");
        assert_eq!(t.upstream.executions(&key), [retry.body]);
    }
}

// R87, R100; threats A12, A13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_whose_client_left_and_that_does_not_end_is_reported() {
    let (mut t, key) = left_alone(Leave::Close).await;
    assert_eq!(t.gateway.ended().await.code(), Some(0), "{}", t.gateway.errors());
    let told = t.gateway.errors();
    assert!(told.contains("1 operations had not ended"), "{told}");
    t.restart().await;
    let retry = t.post(&key).await;
    assert_eq!(retry.problem().as_deref(), Some("idempotency_outcome_unknown"));
    assert_eq!(t.upstream.executions(&key).len(), 1);
}

// R104
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_drains_is_live_and_not_ready() {
    let (mut t, _) = left_alone(Leave::Close).await;
    let ready = t.gateway.admin("/health/ready").await;
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("draining\n"), "{ready}");
    let live = t.gateway.admin("/health/live").await;
    assert!(live.starts_with("HTTP/1.1 200 "), "{live}");
    assert_eq!(t.gateway.metric("onlyonce_executing ").await, 1);
    t.upstream.open_gate();
    assert_eq!(t.gateway.ended().await.code(), Some(0), "{}", t.gateway.errors());
}

// R104
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_end_with_the_answer_that_they_wait_for() {
    let mut t = InFlight::new(0).await;
    let open = || Connection::open(t.gateway.address);
    let (mut idle, mut busy) = (open().await.unwrap(), open().await.unwrap());
    for connection in [&mut idle, &mut busy] {
        connection.post(QUICK, "before", BODY).await.unwrap();
    }
    let key = keys(1).next().unwrap();
    let answer = tokio::spawn(async move { (busy.post(GATED, &key, BODY).await, busy) });
    until("the execution", || t.upstream.executing() == 1).await;
    t.terminate().await;
    until_refused(&t.gateway).await;
    let late = within("the end of a connection", idle.post(QUICK, "after", BODY)).await;
    assert!(late.is_err(), "an idle connection is closed: {late:?}");
    t.upstream.open_gate();
    let (answer, mut busy) = answer.await.unwrap();
    assert_eq!(answer.unwrap().status, 201);
    assert!(busy.post(QUICK, "after", BODY).await.is_err(), "it was the last answer");
    assert_eq!(t.gateway.ended().await.code(), Some(0), "{}", t.gateway.errors());
    assert!(t.upstream.executions("after").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hang_up_signal_changes_nothing() {
    let mut t = InFlight::new(1).await;
    let told = |t: &InFlight| t.gateway.errors().matches("SIGHUP").count();
    t.gateway.hang_up();
    until("a word about it", || told(&t) == 1).await;
    assert!(t.gateway.admin("/health/ready").await.starts_with("HTTP/1.1 200 "));
    t.terminate().await;
    t.gateway.hang_up();
    until("a word about it", || told(&t) == 2).await;
    assert!(!t.gateway.has_ended(), "it waits for what is under way");
    t.upstream.open_gate();
    let (_, answer) = within("the answer", t.answers.join_next()).await.unwrap().unwrap();
    assert_eq!(answer.unwrap().status, 201);
    assert_eq!(t.gateway.ended().await.code(), Some(0), "{}", t.gateway.errors());
}

async fn until_refused(gateway: &Gateway) {
    within("the gateway to take no more connections", async {
        while TcpStream::connect(gateway.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

// R87, R100; threat A13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_not_ended_when_the_drain_is_over_is_unknown() {
    let mut t = InFlight::new(IN_FLIGHT).await;
    t.terminate().await;
    assert_eq!(t.gateway.ended().await.code(), Some(0), "{}", t.gateway.errors());
    let told = t.gateway.errors();
    assert!(told.contains("20 operations had not ended"), "{told}");
    t.restart().await;
    t.upstream.open_gate();
    t.are_unknown().await;
}

// R87, R100; threats A4, A13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_the_gateway_at_once_and_leaves_unknown_outcomes() {
    let mut t = InFlight::new(IN_FLIGHT).await;
    t.terminate().await;
    t.gateway.terminate();
    let ended = timeout(AT_ONCE, t.gateway.ended()).await;
    let ended = ended.expect("it ends at once");
    assert_eq!(ended.code(), Some(3), "{}", t.gateway.errors());
    assert!(t.gateway.errors().contains("stopped at once"), "{}", t.gateway.errors());
    t.restart().await;
    t.are_unknown().await;
    t.upstream.open_gate();
    t.are_unknown().await;
}

// threat A13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_the_gateway_at_once_whatever_it_still_forwards() {
    let mut t = InFlight::new(0).await;
    let address = t.gateway.address;
    tokio::spawn(async move { client::post_without_key(address, GATED, BODY).await });
    until("the execution", || t.upstream.executing() == 1).await;
    t.terminate().await;
    // Nothing that is guarded is under way, so that it already waits for its connections.
    until_refused(&t.gateway).await;
    t.gateway.terminate();
    let ended = timeout(AT_ONCE, t.gateway.ended()).await;
    assert_eq!(ended.expect("it ends at once").code(), Some(3));
}

// R87, R100, R104; threats A3, A4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_in_flight_at_a_kill_are_unknown_after_the_restart() {
    let mut t = InFlight::new(IN_FLIGHT).await;
    t.gateway.kill().await;
    t.restart().await;
    t.are_unknown().await;
    t.upstream.open_gate();
    t.gateway.kill().await;
    t.restart().await;
    t.are_unknown().await;
}
