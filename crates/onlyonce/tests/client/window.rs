//! How long a service keeps keys, where it cannot be asked at the moment.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use onlyonce::client::{
    Answer, Client, Journal, Reach, Retries, SendOutcome, Stop, Transport, TransportError,
};
use tokio::sync::Barrier;

use crate::environment::{ATTEMPT_TIMEOUT, TestTime};
use crate::server::{Act, Server, answer, with};

/// A process that asks the service about itself, and sends once.
async fn process(time: &TestTime, folder: &Path) -> Client {
    let retries = Retries::new().with_environment(time.clone()).with_attempts(1);
    let journal = Journal::open(folder.join("journal")).await.unwrap();
    Client::new().with_retries(retries.with_attempt_timeout(ATTEMPT_TIMEOUT)).with_journal(journal)
}

fn page(ttl_s: u32) -> Act {
    let routes = format!("{{\"routes\":[{{\"match\":\"POST /charges\",\"ttl\":{ttl_s}}}]}}");
    Act::Answer(200, vec![("content-type", "application/json".to_owned())], routes)
}

fn posts(server: &Server) -> usize {
    server.received().iter().filter(|one| one.line.starts_with("POST")).count()
}

/// The one operation that is resumed.
async fn resumed(time: &TestTime, folder: &Path) -> SendOutcome {
    let mut resumed = process(time, folder).await.resume().await.unwrap();
    assert_eq!(resumed.operations.len(), 1);
    resumed.operations.remove(0).1.unwrap()
}

// R158; threat J2
#[tokio::test]
async fn a_service_that_does_not_answer_is_not_taken_for_one_that_keeps_keys_for_a_day() {
    for silence in [Act::ResetBefore, Act::Truncate, Act::Hang, answer(503), answer(429)] {
        let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
        let replay = with(201, "idempotent-replayed", "true");
        // After the first attempt the window is asked for, and the outcome; then each resume asks.
        let silences = vec![silence.clone(); 4];
        let script = [vec![Act::ResetBefore], silences, vec![page(60), replay]].concat();
        let server = Server::start(&time, script).await;
        let end = process(&time, folder.path()).await.post(&server.url()).send().await.unwrap();
        assert_eq!(end.name(), "unknown");
        for _ in 0..2 {
            let end = resumed(&time, folder.path()).await;
            let SendOutcome::Unknown { stop, .. } = &end else { panic!("{silence:?}: {end:?}") };
            assert_eq!(*stop, Stop::WindowUnknown, "{silence:?}");
            assert!(end.advice().contains("same key"), "{}", end.advice());
            assert_eq!(posts(&server), 1, "{silence:?}");
        }
        let journal = Journal::open(folder.path().join("journal")).await.unwrap();
        let [open] = &journal.entries().await.unwrap()[..] else { panic!("it is gone") };
        assert_eq!((open.is_in_doubt, open.needs_reconciling), (true, false));
        // The service is back.
        assert_eq!(resumed(&time, folder.path()).await.name(), "replayed", "{silence:?}");
        assert_eq!(server.left(), 0);
    }
}

// R158; threat J2
#[tokio::test]
async fn the_window_is_kept_in_the_journal_for_a_time_when_the_service_cannot_be_asked() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let lost = [Act::ResetBefore, page(20), answer(404)];
    let early = [Act::ResetBefore, answer(503)];
    let late = [Act::ResetBefore];
    let server = Server::start(&time, lost.into_iter().chain(early).chain(late)).await;
    process(&time, folder.path()).await.post(&server.url()).send().await.unwrap();

    time.pass(Duration::from_secs(5));
    let end = resumed(&time, folder.path()).await;
    assert!(matches!(end, SendOutcome::Unknown { stop: Stop::Attempts, .. }), "{end:?}");
    assert_eq!(posts(&server), 2, "sent without asking first");

    time.pass(Duration::from_secs(30));
    let end = resumed(&time, folder.path()).await;
    assert!(matches!(end, SendOutcome::Unknown { stop: Stop::Window, .. }), "{end:?}");
    assert_eq!(posts(&server), 2);
}

/// Fails each operation, and tells about itself when two have asked.
#[derive(Clone)]
struct Asked(Arc<Barrier>);

impl Transport for Asked {
    async fn send(&mut self, request: Request<Bytes>, _: usize) -> Result<Answer, TransportError> {
        if request.method() == Method::POST {
            let mut failed = Answer::new(StatusCode::INTERNAL_SERVER_ERROR);
            failed.headers.insert("retry-after", http::HeaderValue::from_static("30"));
            return Ok(failed);
        }
        if request.uri().path() != "/.well-known/idempotency" {
            return Ok(Answer::new(StatusCode::NOT_FOUND));
        }
        self.0.wait().await;
        let body = Bytes::from("{\"routes\":[{\"match\":\"*\",\"ttl\":20}]}");
        Ok(Answer { body, ..Answer::new(StatusCode::OK) })
    }
}

// R158; threat J2
#[tokio::test]
async fn while_a_service_is_being_asked_no_other_operation_takes_a_day_for_granted() {
    let time = TestTime::default();
    let retries = Retries::new().with_environment(time.clone());
    let retries = retries.with_attempt_timeout(ATTEMPT_TIMEOUT);
    let once = Client::over(Asked(Arc::new(Barrier::new(2)))).with_retries(retries);
    let send = || once.post("http://shop.test/charges").send();
    let both = futures_util::future::join(send(), send());
    let (one, other) = tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
    for end in [one.unwrap(), other.unwrap()] {
        assert!(matches!(end, SendOutcome::Unknown { stop: Stop::Window, .. }), "{end:?}");
    }
}

/// Loses its first answer and is away for a while; then it tells for how long it keeps keys.
#[derive(Clone)]
struct Away {
    heard: Arc<Mutex<Vec<&'static str>>>,
    ttl_s: u32,
}

impl Transport for Away {
    async fn send(&mut self, request: Request<Bytes>, _: usize) -> Result<Answer, TransportError> {
        let mut heard = self.heard.lock().unwrap();
        let what = match request.uri().path() {
            "/charges" => "charge",
            "/.well-known/idempotency" => "window",
            _ => "look-up",
        };
        heard.push(what);
        let of = |what: &str| heard.iter().filter(|one| **one == what).count();
        match what {
            "charge" if of("charge") == 1 => {
                let mut failed = Answer::new(StatusCode::INTERNAL_SERVER_ERROR);
                failed.headers.insert("retry-after", http::HeaderValue::from_static("90"));
                Ok(failed)
            }
            "charge" => {
                let mut replay = Answer::new(StatusCode::CREATED);
                replay
                    .headers
                    .insert("idempotent-replayed", http::HeaderValue::from_static("true"));
                Ok(replay)
            }
            "window" if of("window") <= 3 => Err(TransportError::new(Reach::NotSent, "away")),
            "window" => {
                let page = format!("{{\"routes\":[{{\"match\":\"*\",\"ttl\":{}}}]}}", self.ttl_s);
                Ok(Answer { body: page.into(), ..Answer::new(StatusCode::OK) })
            }
            _ => Ok(Answer::new(StatusCode::NOT_FOUND)),
        }
    }
}

// R158; threat J2
#[tokio::test]
async fn a_run_that_lasts_sends_nothing_until_it_knows_how_long_keys_are_kept() {
    for (ttl_s, name, charges) in [(3600, "replayed", 2), (60, "unknown", 1)] {
        let time = TestTime::default();
        let away = Away { heard: Arc::default(), ttl_s };
        let retries = Retries::new().with_environment(time.clone()).with_attempts(10);
        let retries = retries.with_deadline(Duration::from_secs(600));
        let once = Client::over(away.clone()).with_retries(retries);
        let end = once.post("http://shop.test/charges").send().await.unwrap();
        assert_eq!(end.name(), name, "{end:?}");
        let heard = away.heard.lock().unwrap().clone();
        assert_eq!(heard.iter().filter(|what| **what == "charge").count(), charges, "{heard:?}");
        let (before, _) = heard.split_at(5);
        assert_eq!(before, ["charge", "window", "window", "window", "window"], "{heard:?}");
    }
}
