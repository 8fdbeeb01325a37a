//! The sample layers have the defects that their articles have: shown here by hand, so that whoever hunts them hunts for
//! something that is there.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use proof::client::{Answer, Connection};
use proof::samples::{LayerName, Settings, serve};
use serde_json::{Value, json};
use servers::{Postgres, Redis};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

struct Sample {
    address: SocketAddr,
    task: JoinHandle<()>,
    _folder: TempDir,
}

impl Drop for Sample {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sample {
    async fn start(layer: LayerName, adjust: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(layer, folder.path().join("executions"));
        settings.sqlite = folder.path().join("sample.db");
        adjust(&mut settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            if let Err(error) = serve(listener, settings).await {
                panic!("the sample did not start: {error}");
            }
        });
        Self { address, task, _folder: folder }
    }

    async fn post(&self, caller: &str, key: &str, path: &str, body: &Value) -> Answer {
        let mut connection = Connection::open(self.address).await.unwrap();
        // The client sends an `x-api-key` of its own, after this one: the sample reads the first.
        let request =
            Request::post(path).header("x-api-key", caller).header("idempotency-key", key);
        connection.send(request, &body.to_string()).await.unwrap()
    }

    /// A request whose answer nobody waits for yet.
    fn post_later(&self, key: &'static str, body: &Value) -> JoinHandle<Answer> {
        let (address, body) = (self.address, body.to_string());
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await.unwrap();
            connection.post("/charges", key, &body).await.unwrap()
        })
    }

    async fn count(&self, marker: &str) -> usize {
        let mut connection = Connection::open(self.address).await.unwrap();
        let answer = connection.send(Request::get(format!("/count?marker={marker}")), "").await;
        String::from_utf8(answer.unwrap().body.to_vec()).unwrap().parse().unwrap()
    }

    async fn wait_for_count(&self, marker: &str, wanted: usize) {
        for _ in 0..LOOKS_MAX {
            if self.count(marker).await >= wanted {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("{marker} was executed {} times, not {wanted}", self.count(marker).await);
    }

    /// Retries until a second execution has begun, as a client does that got no useful answer.
    async fn retry_until_executed_twice(&self, key: &str, body: &Value) {
        let marker = body["marker"].as_str().unwrap();
        for _ in 0..LOOKS_MAX {
            if self.count(marker).await == 2 {
                return;
            }
            self.post("proof", key, "/charges", body).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("{marker} was executed {} times, not twice", self.count(marker).await);
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: usize = 500;
/// Far below the time that a slow charge takes here.
const STALE: Duration = Duration::from_millis(300);

fn json_of(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_a_resets_a_live_claim_and_replays_what_is_not_there() {
    let (redis, postgres) = (Redis::start(&[]), Postgres::start());
    let sample = Sample::start(LayerName::A, |settings| {
        settings.redis = redis.url();
        settings.postgres = postgres.database();
        (settings.sweep_every, settings.stale_after) = (STALE / 3, STALE);
    })
    .await;
    let first = sample.post("one", "plain", "/charges", &json!({ "marker": "plain" })).await;
    let second = sample.post("two", "plain", "/charges", &json!({ "marker": "plain" })).await;
    assert_eq!(first.status, 201);
    assert_eq!(first.body, second.body, "two callers with one key meet");
    assert_eq!(sample.count("plain").await, 1);

    let slow = json!({ "marker": "slow", "slow_ms": 2000 });
    // Either may be the first to claim. The other one is answered while the claim is alive.
    let (one, other) = (sample.post_later("slow", &slow), sample.post_later("slow", &slow));
    let early = tokio::select! { early = one => early, early = other => early }.unwrap();
    assert_eq!((early.status.as_u16(), json_of(&early)), (200, Value::Null));
    sample.retry_until_executed_twice("slow", &slow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_b_deletes_live_rows_and_fails_for_ever_though_the_effect_exists() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let sample = Sample::start(LayerName::B, |settings| settings.postgres = url.clone()).await;
    let raised = json!({ "marker": "raised", "fail": "after" });
    for _ in 0..3 {
        assert_eq!(sample.post("proof", "raised", "/charges", &raised).await.status, 500);
    }
    assert_eq!(sample.count("raised").await, 1);

    let swept = Sample::start(LayerName::B, |settings| {
        settings.postgres = url;
        (settings.sweep_every, settings.stale_after) = (STALE / 3, STALE);
    })
    .await;
    let slow = json!({ "marker": "slow", "slow_ms": 2000 });
    let first = swept.post_later("slow", &slow);
    swept.wait_for_count("slow", 1).await;
    swept.retry_until_executed_twice("slow", &slow).await;
    assert_eq!(first.await.unwrap().status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_c_forgets_the_key_after_an_exception_and_joins_its_parts() {
    let redis = Redis::start(&[]);
    let sample = Sample::start(LayerName::C, |settings| settings.redis = redis.url()).await;
    let body = json!({ "marker": "raised" });
    assert_eq!(sample.post("proof", "raised", "/charges?fail=after", &body).await.status, 500);
    assert_eq!(sample.count("raised").await, 1);
    assert_eq!(sample.post("proof", "raised", "/charges", &body).await.status, 201);
    assert_eq!(sample.count("raised").await, 2, "the retry executes again");

    let body = json!({ "marker": "joined" });
    let one = sample.post("x", "y:charges:z", "/charges", &body).await;
    let other = sample.post("x:charges:y", "z", "/charges", &body).await;
    assert_eq!(one.body, other.body, "another caller with another key gets this answer");

    let first = sample.post_later("hidden", &json!({ "marker": "hidden", "slow_ms": 1000 }));
    sample.wait_for_count("hidden", 1).await;
    let other = sample.post("proof", "hidden", "/charges", &json!({ "marker": "other" })).await;
    assert_eq!(other.status, 409);
    assert_eq!(json_of(&other)["error"], "the first request is still running");
    assert_eq!(first.await.unwrap().status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_d_replays_a_declined_charge_as_200_and_stays_pending_for_ever() {
    let sample = Sample::start(LayerName::D, |_| {}).await;
    let declined = json!({ "marker": "declined", "fail": "decline" });
    let first = sample.post("proof", "declined", "/charges", &declined).await;
    let second = sample.post("proof", "declined", "/charges", &declined).await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (402, 200));
    assert_eq!(first.body, second.body);

    let slow = json!({ "marker": "left", "slow_ms": 1000 });
    let first = sample.post_later("left", &slow);
    sample.wait_for_count("left", 1).await;
    // The client leaves: the handler is cancelled.
    first.abort();
    assert!(first.await.is_err());
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(sample.post("proof", "left", "/charges", &slow).await.status, 409);
    }
    assert_eq!(sample.count("left").await, 1);
}
