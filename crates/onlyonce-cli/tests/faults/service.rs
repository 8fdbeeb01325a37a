//! The service behind the gateways: each effect is a line on the disk before it is answered.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use proof::history::now_ns;
use proof::oracle::Oracle;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::operation::{Class, digest};

/// A running service. It outlives every gateway.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    oracle: PathBuf,
    _server: JoinSet<()>,
}

impl Service {
    pub(crate) async fn start(folder: &Path) -> Self {
        let oracle = folder.join("oracle");
        let books =
            Arc::new(Books { oracle: Oracle::open(&oracle).unwrap(), done: Mutex::default() });
        let app = Router::new()
            .route(Class::Opaque.path(), post(charge))
            .route(Class::Redrive.path(), post(transfer))
            .with_state(books);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, oracle, _server: server }
    }

    /// A line per effect, and per repetition that was recognised.
    pub(crate) fn lines(&self) -> String {
        std::fs::read_to_string(&self.oracle).unwrap()
    }
}

#[derive(Debug)]
struct Books {
    oracle: Oracle,
    /// The answers of transfers, by caller and key.
    done: Mutex<HashMap<(String, String), Bytes>>,
}

/// Recognises nothing: what comes is done.
async fn charge(State(books): State<Arc<Books>>, headers: HeaderMap, body: Bytes) -> Response {
    if is_busy() {
        return StatusCode::TOO_MANY_REQUESTS.into_response();
    }
    let asked = Asked::of(&headers, &body);
    let answer = asked.answer();
    books.note(&asked, "effect", &answer);
    sleep(work()).await;
    (StatusCode::CREATED, answer).into_response()
}

/// Recognises keys, as a service must whose requests may be sent again.
async fn transfer(State(books): State<Arc<Books>>, headers: HeaderMap, body: Bytes) -> Response {
    let asked = Asked::of(&headers, &body);
    let Some((answer, kind)) = books.once(&asked) else {
        return StatusCode::TOO_MANY_REQUESTS.into_response();
    };
    books.note(&asked, kind, &answer);
    sleep(work()).await;
    (StatusCode::CREATED, answer).into_response()
}

impl Books {
    fn note(&self, asked: &Asked, kind: &str, answer: &[u8]) {
        let line = json!({
            "t": now_ns(), "process": "service", "kind": kind, "caller": asked.caller, "key": asked.key,
            "attempt": asked.attempt, "fp": asked.fingerprint, "body": digest(answer),
        });
        block_in_place(|| self.oracle.note(&line.to_string())).unwrap();
    }

    /// The answer, new or of the first time; `None` if the service is too busy to begin.
    fn once(&self, asked: &Asked) -> Option<(Bytes, &'static str)> {
        let mut done = self.done.lock().unwrap();
        let place = (asked.caller.clone(), asked.key.clone());
        if let Some(answer) = done.get(&place) {
            return Some((answer.clone(), "arrival"));
        }
        if is_busy() {
            return None;
        }
        let answer = asked.answer();
        done.insert(place, answer.clone());
        Some((answer, "effect"))
    }
}

/// A request, as the service sees it.
struct Asked {
    caller: String,
    key: String,
    attempt: Option<u64>,
    fingerprint: String,
}

impl Asked {
    fn of(headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
        Self {
            caller: text("x-api-key").to_owned(),
            key: text("idempotency-key").trim_matches('"').to_owned(),
            attempt: text("idempotency-attempt").parse().ok(),
            fingerprint: digest(body),
        }
    }

    /// It names who asked, and no second effect would repeat it.
    fn answer(&self) -> Bytes {
        let nonce = format!("{:032x}", fastrand::u128(..));
        json!({"caller": self.caller, "key": self.key, "nonce": nonce}).to_string().into()
    }
}

/// Whether it refuses this one, and does nothing.
fn is_busy() -> bool {
    fastrand::u8(..100) < 3
}

/// Mostly short; sometimes longer than a lease.
fn work() -> Duration {
    Duration::from_millis(match fastrand::u8(..100) {
        0..85 => fastrand::u64(0..20),
        85..97 => fastrand::u64(50..300),
        _ => fastrand::u64(1_100..1_500),
    })
}
