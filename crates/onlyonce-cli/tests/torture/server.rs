//! A small server that honours keys, and the ways in which it can be broken.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde_json::Value;

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing: a control.
    None,
    /// Looks whether there is an answer, but claims nothing while it runs.
    NoClaim,
    /// Forgets the key when the handler fails after its effect.
    ReleaseOnError,
    /// The same, and its counter tells each number once: the service is restarted before it is asked again.
    ForgetfulCounter,
    /// Executes for each caller, but keeps one answer for all of them.
    MixedAnswers,
    /// The key alone is the name of an operation.
    NoPrincipal,
    /// Does not compare requests.
    NoFingerprint,
    /// Compares the first 64 bytes of a request.
    ShortFingerprint,
    /// The work ends with the connection, and its claim with it.
    CancelsWithClient,
    /// Keeps half of the answer.
    TruncatedReplay,
    /// Answers a replay with 200.
    AlwaysOk,
    /// Says that it succeeded at one key, and does nothing.
    Lies,
    /// Keys of more than 64 characters are cut.
    CutKeys,
    /// The connection ends in the middle of every replay.
    BreaksReplays,
    /// Refuses every new key once a crowd was there.
    DiesOfACrowd,
    /// No bug of keys: one request in six fails, by 503 or in the middle of its answer, with any key.
    FailsNowAndThen,
    /// The same, and refuses every new key once a crowd was there.
    FailsNowAndThenAndDies,
    /// No bug of keys: the first two requests fail.
    StartsBadly,
    /// No bug of keys: after some requests it answers no more.
    Stalls,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    bug: Bug,
    /// How long an execution takes.
    time: Duration,
    state: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    records: HashMap<String, Record>,
    executions: HashMap<String, usize>,
    /// By key alone.
    answers: HashMap<String, String>,
    requests: usize,
    /// Requests of one key.
    most: HashMap<String, usize>,
}

#[derive(Clone)]
struct Record {
    request: Bytes,
    answer: Option<(u16, String)>,
}

impl Server {
    pub(crate) async fn start(bug: Bug) -> Self {
        Self::with_time(bug, SERVICE_TIME).await
    }

    pub(crate) async fn with_time(bug: Bug, time: Duration) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { address, bug, time, state: Arc::default() };
        let app = Router::new()
            .route("/charges", post(charge))
            .route("/count", get(count))
            .route("/forget", post(forget))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/charges", self.address)
    }

    pub(crate) fn count_url(&self) -> String {
        format!("http://{}/count?marker={{marker}}", self.address)
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    /// The effect.
    fn execute(&self, marker: &str) -> usize {
        let mut state = self.state.lock().unwrap();
        *state.executions.entry(marker.to_owned()).or_default() += 1;
        state.executions.values().sum()
    }

    /// What is done while a claim is held.
    async fn work(self, id: String, key: String, body: Value) -> (u16, String) {
        let marker = body["marker"].as_str().unwrap_or_default().to_owned();
        let is_idle = self.bug == Bug::Lies && marker.contains("-t1-001");
        let number = if is_idle { 0 } else { self.execute(&marker) };
        tokio::time::sleep(self.time).await;
        let mut state = self.state.lock().unwrap();
        if body["fail"] == true {
            let failed = (500, "{\"error\":\"failed\"}".to_owned());
            if matches!(self.bug, Bug::ReleaseOnError | Bug::ForgetfulCounter) {
                state.records.remove(&id);
            } else if let Some(record) = state.records.get_mut(&id) {
                record.answer = Some(failed.clone());
            }
            return failed;
        }
        let mut text = format!("{{\"id\":\"ch_{number}\",\"marker\":\"{marker}\"}}");
        if self.bug == Bug::MixedAnswers {
            text = state.answers.entry(key).or_insert(text).clone();
        }
        if let Some(record) = state.records.get_mut(&id) {
            record.answer = Some((201, text.clone()));
        }
        (201, text)
    }

    /// The name of the operation.
    fn id(&self, headers: &HeaderMap, key: &str) -> String {
        let caller = headers.get("authorization").map_or("", |value| value.to_str().unwrap());
        let key = if self.bug == Bug::CutKeys { &key[..key.len().min(64)] } else { key };
        if self.bug == Bug::NoPrincipal { key.to_owned() } else { format!("{caller}\n{key}") }
    }

    /// Whether a crowd with one key was there.
    fn has_seen_a_crowd(&self, key: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        *state.most.entry(key.to_owned()).or_default() += 1;
        state.most.values().any(|requests| *requests > CROWD)
    }

    /// Nothing wrong with keys: how this request fails, if it does.
    fn failing(&self, number: usize) -> Failing {
        match self.bug {
            Bug::StartsBadly if number <= 2 => Failing::Refused,
            Bug::Stalls if number > 40 => Failing::Never,
            Bug::FailsNowAndThen | Bug::FailsNowAndThenAndDies => {
                let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                match mixed % 12 {
                    0 => Failing::Refused,
                    1 => Failing::Broken,
                    _ => Failing::Not,
                }
            }
            _ => Failing::Not,
        }
    }

    /// The answer to a request whose key is known, or nothing if it is claimed now.
    fn known(&self, id: &str, body: &Bytes) -> Option<Response> {
        let mut state = self.state.lock().unwrap();
        let Some(record) = state.records.get(id).cloned() else {
            state.records.insert(id.to_owned(), Record { request: body.clone(), answer: None });
            return None;
        };
        let is_same = match self.bug {
            Bug::NoFingerprint | Bug::CutKeys => true,
            Bug::ShortFingerprint => {
                record.request[..record.request.len().min(64)] == body[..body.len().min(64)]
            }
            _ => record.request == *body,
        };
        if !is_same {
            return Some((StatusCode::UNPROCESSABLE_ENTITY, "another request").into_response());
        }
        let Some((status, text)) = record.answer else {
            let is_claimed = self.bug != Bug::NoClaim;
            return is_claimed.then(|| (StatusCode::CONFLICT, "in progress").into_response());
        };
        Some(match self.bug {
            Bug::TruncatedReplay => answer(status, &text[..text.len() / 2]),
            Bug::AlwaysOk => answer(200, &text),
            Bug::BreaksReplays => broken(&text),
            _ => answer(status, &text),
        })
    }
}

/// What becomes of a request, whatever its key.
enum Failing {
    Not,
    Refused,
    /// Its answer breaks off.
    Broken,
    /// It is never answered.
    Never,
}

/// Forgets the claim when the work is dropped.
struct Guard(Server, String);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap();
        if state.records.get(&self.1).is_some_and(|record| record.answer.is_none()) {
            state.records.remove(&self.1);
        }
    }
}

async fn charge(State(server): State<Server>, headers: HeaderMap, body: Bytes) -> Response {
    let number = {
        let mut state = server.state.lock().unwrap();
        state.requests += 1;
        state.requests
    };
    match server.failing(number) {
        Failing::Not => answered(server, headers, body).await,
        Failing::Refused => answer(503, "overloaded"),
        Failing::Never => std::future::pending().await,
        Failing::Broken => {
            answered(server, headers, body).await;
            broken("not all of it")
        }
    }
}

async fn answered(server: Server, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(parsed) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "not JSON").into_response();
    };
    let keys: Vec<_> = headers.get_all("idempotency-key").iter().collect();
    let key = match keys.as_slice() {
        [key] => key.to_str().ok().filter(|key| (1..=300).contains(&key.len())),
        _ => None,
    };
    let Some(key) = key else { return (StatusCode::BAD_REQUEST, "no key").into_response() };
    let id = server.id(&headers, key);
    let dies = matches!(server.bug, Bug::DiesOfACrowd | Bug::FailsNowAndThenAndDies);
    if dies && server.has_seen_a_crowd(key) {
        return answer(503, "no thread is left");
    }
    if let Some(known) = server.known(&id, &body) {
        return known;
    }
    let work = server.clone().work(id.clone(), key.to_owned(), parsed);
    let (status, text) = match server.bug {
        Bug::CancelsWithClient => {
            let _guard = Guard(server, id);
            work.await
        }
        _ => tokio::spawn(work).await.unwrap(),
    };
    answer(status, &text)
}

async fn count(
    State(server): State<Server>,
    Query(asked): Query<HashMap<String, String>>,
) -> String {
    let mut state = server.state.lock().unwrap();
    let marker = &asked["marker"];
    let count = match server.bug {
        Bug::ForgetfulCounter => state.executions.remove(marker),
        _ => state.executions.get(marker).copied(),
    };
    count.unwrap_or_default().to_string()
}

/// As a store that is emptied.
async fn forget(State(server): State<Server>) -> &'static str {
    server.state.lock().unwrap().records.clear();
    "forgotten"
}

fn answer(status: u16, text: &str) -> Response {
    (StatusCode::from_u16(status).unwrap(), text.to_owned()).into_response()
}

/// The connection ends in the middle of the answer.
fn broken(text: &str) -> Response {
    let half = Ok(Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]));
    let end = Err(std::io::Error::other("broken"));
    Body::from_stream(futures_util::stream::iter([half, end])).into_response()
}

/// More requests with one key are a crowd; other attacks send fewer.
const CROWD: usize = 72;
/// Long enough to be cut in its middle.
const SERVICE_TIME: Duration = Duration::from_millis(20);
