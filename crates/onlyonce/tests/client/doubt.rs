//! Once an attempt may have been executed, only the server's record of the key says what became of it.

use std::path::Path;

use onlyonce::client::journal::JournalError;
use onlyonce::client::{Client, Doubt, Journal, SendError, SendOutcome, Transport, TransportError};
use onlyonce::code::Retry;

use crate::environment::TestTime;
use crate::server::{Act, Received, Server, answer, problem, with};

/// The name of what a script ends in, and what was received.
async fn end(script: &[Act]) -> (String, Vec<Received>) {
    let time = TestTime::default();
    let server = Server::start(&time, script.to_vec()).await;
    let end = time.client().post(&server.url()).body("amount=1").send().await;
    assert_eq!(server.left(), 0, "it stopped early: {end:?}");
    (end.map_or_else(|error| error.to_string(), |end| end.name().to_owned()), server.received())
}

/// Everything after which an attempt may have been executed.
fn doubtful() -> Vec<Act> {
    use Act::{Garbage, Hang, ResetAfter, ResetBefore, Truncate};
    let unknown = "{\"code\":\"idempotency_outcome_unknown\",\"retry\":\"same-key\"}";
    let acts = [ResetBefore, ResetAfter, Truncate, Hang, Garbage];
    acts.into_iter()
        .chain([408, 500, 502, 503, 504, 409].map(answer))
        .chain([problem(504, unknown)])
        .collect()
}

const REFUSALS: [u16; 21] = [
    400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 412, 413, 414, 415, 418, 421, 422, 431, 451,
    501, 505,
];

// R161; threats J3, K6
#[tokio::test]
async fn a_bare_refusal_says_nothing_of_an_earlier_attempt() {
    for refusal in REFUSALS {
        let (name, _) = end(&[Act::ResetBefore, answer(refusal)]).await;
        assert_eq!(name, "unknown", "a lost answer, then {refusal}");
    }
    for act in doubtful() {
        let (name, _) = end(&[act.clone(), answer(404)]).await;
        assert_eq!(name, "unknown", "{act:?}, then 404");
    }
    for refusal in REFUSALS {
        let (name, _) = end(&[answer(429), answer(refusal)]).await;
        assert_eq!(name, "rejected", "a 429, then {refusal}: no attempt was executed");
    }
}

// R161; threats J3, K6
#[tokio::test]
async fn codes_that_found_no_answer_in_the_record_say_nothing_of_an_earlier_attempt() {
    for (status, code, retry) in [
        (400, "idempotency_key_missing", "new-key"),
        (400, "idempotency_key_invalid", "new-key"),
        (400, "principal_unclear", "never"),
        (401, "principal_invalid", "never"),
        (401, "webhook_signature_invalid", "never"),
        (413, "request_too_large", "never"),
        (422, "idempotency_key_reused", "new-key"),
        (504, "idempotency_deadline_exceeded", "never"),
    ] {
        let told = problem(status, &format!("{{\"code\":\"{code}\",\"retry\":\"{retry}\"}}"));
        let (name, _) = end(&[Act::ResetBefore, told.clone()]).await;
        assert_eq!(name, "unknown", "{code}");
        let (name, _) = end(&[told]).await;
        assert_eq!(name, "rejected", "{code} without a doubt");
    }
    // The key is old, so that an earlier run may have been executed and forgotten.
    let expired = problem(412, "{\"code\":\"idempotency_key_expired\",\"retry\":\"never\"}");
    for script in [&[expired.clone()][..], &[Act::ResetBefore, expired]] {
        assert_eq!(end(script).await.0, "unknown", "{script:?}");
    }
    let json = ("content-type", "application/json".to_owned());
    let mismatch = "{\"error\":{\"type\":\"idempotency_error\"}}".to_owned();
    let (name, _) = end(&[Act::ResetBefore, Act::Answer(400, vec![json], mismatch)]).await;
    assert_eq!(name, "unknown", "Stripe's mismatch");
}

// R161; threat K6
#[tokio::test]
async fn an_answer_from_the_record_speaks_for_every_attempt() {
    let not_kept = |status| {
        let code = "idempotency_response_unavailable";
        let body =
            format!("{{\"code\":\"{code}\",\"retry\":\"never\",\"original_status\":{status}}}");
        problem(410, &body)
    };
    for (told, expected) in [
        (with(201, REPLAYED, "true"), "replayed"),
        (with(402, REPLAYED, "true"), "rejected"),
        (with(401, REPLAYED, "true"), "rejected"),
        (with(500, REPLAYED, "true"), "unknown"),
        (not_kept(201), "done"),
        (not_kept(402), "rejected"),
        (not_kept(500), "unknown"),
    ] {
        let (name, _) = end(&[Act::ResetBefore, told.clone()]).await;
        assert_eq!(name, expected, "{told:?}");
    }
}

// The shape of Stripe has no member for the status: what was executed must not be called refused.
#[tokio::test]
async fn the_codes_of_the_gateway_count_in_stripes_shape_too() {
    let stripe = |status, code: &str| {
        let json = ("content-type", "application/json".to_owned());
        let after = ("retry-after", "60".to_owned());
        Act::Answer(status, vec![json, after], format!("{{\"error\":{{\"code\":\"{code}\"}}}}"))
    };
    let time = TestTime::default();
    let gone = stripe(410, "idempotency_response_unavailable");
    let held = stripe(409, "idempotency_outcome_unknown");
    let server = Server::start(&time, [gone, held]).await;
    let ended = time.client().post(&server.url()).send().await.unwrap();
    assert!(matches!(ended, SendOutcome::Unknown { .. }), "{ended:?}");
    let ended = time.client().post(&server.url()).send().await.unwrap();
    assert!(matches!(ended, SendOutcome::Unknown { doubt: Doubt::HeldUnknown, .. }), "{ended:?}");
}

// threat K10
#[tokio::test]
async fn the_service_says_whether_it_was_executed_and_the_advice_repeats_it() {
    let advice = async |status, code: &str, retry: &str| {
        let time = TestTime::default();
        let body = format!("{{\"code\":\"{code}\",\"retry\":\"{retry}\"}}");
        let server = Server::start(&time, [problem(status, &body)]).await;
        let end = time.client().post(&server.url()).body("amount=1").send().await.unwrap();
        (end.name(), end.advice())
    };
    let (name, said) = advice(409, "idempotency_response_unavailable", "never").await;
    assert_eq!(name, "unknown");
    assert!(said.contains("was executed") && said.contains("do not send"), "{said}");
    let (name, said) = advice(502, "idempotency_outcome_unknown", "never").await;
    assert_eq!(name, "unknown");
    assert!(said.contains("may have been executed"), "{said}");
    let (name, said) = advice(400, "idempotency_key_invalid", "never").await;
    assert_eq!(name, "rejected");
    assert!(said.contains("not executed") && !said.contains("new key"), "{said}");
    // The key was used for the same operation under another spelling of its path.
    let (name, said) = advice(422, "idempotency_key_reused", "never").await;
    assert_eq!(name, "rejected");
    assert!(!said.contains("new key") && said.contains("check at the service"), "{said}");
    let (name, said) = advice(401, "principal_invalid", "same-key").await;
    assert_eq!(name, "rejected");
    assert!(said.contains("with the same key"), "{said}");
    let (name, said) = advice(400, "idempotency_key_invalid", "new-key").await;
    assert_eq!(name, "rejected");
    assert!(said.contains("with a new key"), "{said}");
}

// threats J5, K10
#[tokio::test]
async fn a_rollback_is_retried_four_times_and_then_did_nothing() {
    let time = TestTime::default();
    let body = "{\"code\":\"idempotency_rolled_back\",\"retry\":\"same-key\"}";
    let server = Server::start(&time, vec![problem(409, body); 10]).await;
    let end = time.client().post(&server.url()).send().await;
    assert!(matches!(end, Err(SendError::NotThrough { .. })), "{end:?}");
    assert_eq!(server.received().len(), 4);
}

// threat K12
#[tokio::test]
async fn a_refusal_that_is_on_no_record_leaves_the_key_in_the_journal() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let server =
        Server::start(&time, [answer(401), answer(403), with(201, REPLAYED, "true")]).await;
    let once = journalled(&time, folder.path()).await;
    let sent = once.post(&server.url()).body("amount=1").send().await.unwrap();
    let SendOutcome::Rejected { retry: Retry::SameKey, .. } = &sent else { panic!("{sent:?}") };
    assert!(sent.advice().contains("never with a new one"), "{}", sent.advice());
    for expected in ["rejected", "replayed"] {
        let [open] = &open(folder.path()).await.entries().await.unwrap()[..] else { panic!() };
        assert!(!open.is_in_doubt);
        let resumed = once.resume().await.unwrap();
        let [(key, Ok(end))] = &resumed.operations[..] else { panic!("{resumed:?}") };
        assert_eq!((end.name(), key), (expected, &open.key));
    }
    assert!(open(folder.path()).await.entries().await.unwrap().is_empty());
    let received = server.received();
    let keys: Vec<_> = received.iter().map(|one| one.header("idempotency-key")).collect();
    assert!(keys.windows(2).all(|two| two[0] == two[1]), "{keys:?}");
}

// threat K11
#[tokio::test]
async fn an_outcome_that_cannot_be_told_stays_in_the_journal() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let replayed = || with(201, REPLAYED, "true");
    let server = Server::start(&time, [answer(201), replayed(), replayed(), answer(402)]).await;
    let once = journalled(&time, folder.path()).await;
    let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
    let left = async || open(folder.path()).await.entries().await.unwrap().len();

    let charge = once.post(&server.url()).body("amount=1");
    let sent = charge.send_and_tell(|_| Err(full())).await.unwrap();
    assert_eq!((sent.name(), left().await), ("fresh", 1));
    let resumed = once.resume_and_tell(|_, _| Err(full())).await.unwrap();
    assert!(matches!(&resumed.failures[..], [(_, JournalError::NotTold(_))]), "{resumed:?}");
    assert_eq!(left().await, 1);
    let mut told = Vec::new();
    let tell = |_: &_, end: &Result<SendOutcome, _>| {
        told.push(end.as_ref().map_or("error", SendOutcome::name));
        Ok(())
    };
    once.resume_and_tell(tell).await.unwrap();
    assert_eq!((told, left().await), (vec!["replayed"], 0));

    let refused = once.post(&server.url()).body("amount=2");
    let sent = refused.send_and_tell(|_| Err(full())).await.unwrap();
    assert_eq!((sent.name(), left().await), ("rejected", 1));
}

// R160; threat K6
#[tokio::test]
async fn a_redirect_is_not_followed_after_an_attempt_that_may_have_been_executed() {
    let time = TestTime::default();
    let stranger = Server::start(&time, []).await;
    for status in [301, 302, 303, 307, 308] {
        for location in ["/v2/charges", stranger.url().as_str()] {
            let moved = with(status, "location", location);
            let (name, received) = end(&[Act::ResetBefore, moved]).await;
            assert_eq!((name.as_str(), received.len()), ("unknown", 2), "{status} to {location}");
        }
    }
    assert!(stranger.received().is_empty());
}

// R160: the record says that every attempt was redirected, so the operation is at the other path or nowhere.
#[tokio::test]
async fn a_redirect_from_the_record_is_followed_with_the_key() {
    let headers = vec![("location", "/v2/charges".to_owned()), (REPLAYED, "true".to_owned())];
    let replayed = Act::Answer(307, headers, String::new());
    let (name, received) = end(&[Act::ResetBefore, replayed, with(201, REPLAYED, "true")]).await;
    assert_eq!((name.as_str(), received.len()), ("replayed", 3));
    assert_eq!(received[2].line, "POST /v2/charges HTTP/1.1");
}

// R151, R161; threat K6
#[tokio::test]
async fn a_refusal_after_a_doubt_stays_in_the_journal_until_the_record_is_heard() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let script =
        [Act::ResetBefore, answer(401), answer(404), answer(400), with(402, REPLAYED, "true")];
    let server = Server::start(&time, script).await;
    let once = journalled(&time, folder.path()).await;
    let sent = once.post(&server.url()).body("amount=1").send().await.unwrap();
    assert_eq!(sent.name(), "unknown");
    // Other processes, which know of the first from the journal alone.
    for expected in ["unknown", "unknown", "unknown", "rejected"] {
        let once = journalled(&time, folder.path()).await;
        let resumed = once.resume().await.unwrap();
        let [(_, Ok(end))] = &resumed.operations[..] else { panic!("{resumed:?}") };
        assert_eq!(end.name(), expected);
        let entries = open(folder.path()).await.entries().await.unwrap();
        assert_eq!(entries.len(), usize::from(expected == "unknown"));
    }
    assert_eq!(server.left(), 0);
}

// R151; threats J1, K6
#[tokio::test]
async fn an_operation_whose_process_died_is_in_doubt_for_the_next_one() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let server = Server::start(&time, [answer(404), answer(404)]).await;
    let dying = Client::over(Endless).with_retries(time.retries());
    let dying = dying.with_journal(open(folder.path()).await);
    let request = dying.post(&server.url()).with_key(onlyonce::key::Key::derive(["order", "1"]));
    let died = tokio::time::timeout(std::time::Duration::from_millis(200), request.send()).await;
    assert!(died.is_err(), "it was to be killed in mid-attempt");

    // By hand with the same key, and by a resume.
    let once = journalled(&time, folder.path()).await;
    let again = once.post(&server.url()).with_key(onlyonce::key::Key::derive(["order", "1"]));
    assert_eq!(again.send().await.unwrap().name(), "unknown");
    let resumed = once.resume().await.unwrap();
    let [(_, Ok(SendOutcome::Unknown { .. }))] = &resumed.operations[..] else {
        panic!("{resumed:?}")
    };
    assert_eq!(server.left(), 0);
}

/// Takes every request and never answers.
#[derive(Clone)]
struct Endless;

impl Transport for Endless {
    async fn send(
        &mut self,
        _: http::Request<bytes::Bytes>,
        _: usize,
    ) -> Result<onlyonce::client::Answer, TransportError> {
        std::future::pending().await
    }
}

async fn open(folder: &Path) -> Journal {
    Journal::open(folder.join("journal")).await.unwrap()
}

/// One attempt for each run.
async fn journalled(time: &TestTime, folder: &Path) -> Client {
    let once = time.client().with_retries(time.retries().with_attempts(1));
    once.with_journal(open(folder).await)
}

const REPLAYED: &str = "idempotent-replayed";
