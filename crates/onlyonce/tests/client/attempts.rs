//! How often, with what waits, and always with the same bytes.

use std::time::Duration;

use onlyonce::client::{Doubt, SendError, SendOutcome, Stop};
use onlyonce::key::Key;

use crate::environment::{BACKOFF, BACKOFF_MAX, TestTime};
use crate::server::{Act, Received, Server, answer, problem, with};

const BODY: &str = "{\"amount\":7998}";

/// What a script ends in.
async fn send(time: &TestTime, script: &[Act]) -> (Result<SendOutcome, SendError>, Vec<Received>) {
    let server = Server::start(time, script.to_vec()).await;
    let request = time.client().post(&server.url()).header("content-type", "application/json");
    let end = request.body(BODY).send().await;
    assert_eq!(server.left(), 0, "it stopped early: {end:?}");
    (end, server.received())
}

fn name(end: &Result<SendOutcome, SendError>) -> &'static str {
    match end {
        Ok(outcome) => outcome.name(),
        Err(SendError::NotThrough { .. }) => "not through",
        Err(_) => "wrong",
    }
}

/// Every attempt is the first again, but for its number.
fn assert_same_bytes(received: &[Received]) {
    for (n, request) in received.iter().enumerate() {
        let number = (n + 1).to_string();
        assert_eq!(request.header("idempotency-attempt"), Some(number.as_str()));
        let mut as_first = request.clone();
        for (name, value) in &mut as_first.headers {
            if name == "idempotency-attempt" {
                "1".clone_into(value);
            }
        }
        assert_eq!(as_first, received[0]);
        assert_eq!(request.body, BODY.as_bytes());
    }
}

/// The `n`th wait is at most the backoff, on top of what was asked for.
fn assert_waits(time: &TestTime, asked: &[Duration]) {
    let waits = time.waits();
    assert_eq!(waits.len(), asked.len(), "{waits:?}");
    for (n, (wait, asked)) in waits.iter().zip(asked).enumerate() {
        let backoff = (BACKOFF * (1 << n)).min(BACKOFF_MAX);
        // The dice of these tests always draw the longest.
        assert_eq!(*wait, *asked + backoff, "wait {n}");
    }
}

const NOTHING: Duration = Duration::ZERO;
const REPLAYED: &str = "idempotent-replayed";

// R149, R152, R153, R156, R163; cases CLI-01, CLI-05
#[tokio::test]
async fn each_failure_is_retried_with_the_same_bytes_until_the_attempts_are_used() {
    use Act::{Garbage, Hang, ResetAfter, ResetBefore, Truncate};
    let acts = [
        (answer(409), "unknown"),
        (answer(425), "not through"),
        (answer(429), "not through"),
        (answer(500), "unknown"),
        (answer(502), "unknown"),
        (answer(503), "unknown"),
        (with(503, "retry-after", "0"), "not through"),
        (answer(504), "unknown"),
        (ResetBefore, "unknown"),
        (ResetAfter, "unknown"),
        (Truncate, "unknown"),
        (Garbage, "unknown"),
        (Hang, "unknown"),
    ];
    for (act, end_name) in acts {
        // Failed once, it is answered at the second attempt.
        let time = TestTime::default();
        let (end, received) = send(&time, &[act.clone(), answer(201)]).await;
        assert_eq!((name(&end), received.len()), ("fresh", 2), "{act:?}");
        assert_waits(&time, &[NOTHING]);
        assert_same_bytes(&received);

        // A 409 is asked about until the deadline, which comes later than the end of this script.
        if matches!(act, Act::Answer(409, ..)) {
            continue;
        }
        // Failing for ever, it ends with the fourth.
        let time = TestTime::default();
        let (end, received) = send(&time, &vec![act.clone(); 4]).await;
        assert_eq!((name(&end), received.len()), (end_name, 4), "{act:?}");
        assert_waits(&time, &[NOTHING; 3]);
        assert_same_bytes(&received);
    }
}

// R154; cases CLI-03; threat J3
#[tokio::test]
async fn what_is_definite_is_sent_once() {
    let reused = "{\"code\":\"idempotency_key_reused\",\"retry\":\"new-key\"}";
    let gone = "{\"retry\":\"never\",\"original_status\":201}";
    let closed = "{\"code\":\"idempotency_outcome_unknown\",\"retry\":\"never\"}";
    let acts = [
        (answer(200), "fresh"),
        (answer(204), "fresh"),
        (with(201, REPLAYED, "true"), "replayed"),
        (with(402, REPLAYED, "true"), "rejected"),
        (with(500, REPLAYED, "true"), "unknown"),
        (answer(400), "rejected"),
        (answer(401), "rejected"),
        (answer(402), "rejected"),
        (answer(404), "rejected"),
        (answer(422), "rejected"),
        (problem(422, reused), "rejected"),
        (problem(410, gone), "done"),
        (problem(502, closed), "unknown"),
        (with(500, "stripe-should-retry", "false"), "unknown"),
        (with(503, "grpc-retry-pushback-ms", "-1"), "unknown"),
        (with(429, "grpc-retry-pushback-ms", "no number"), "not through"),
    ];
    for (act, end_name) in acts {
        let time = TestTime::default();
        let (end, received) = send(&time, std::slice::from_ref(&act)).await;
        assert_eq!((name(&end), received.len()), (end_name, 1), "{act:?}");
        assert_waits(&time, &[]);
    }
}

// R155; case CLI-02
#[tokio::test]
async fn the_server_says_how_long_to_wait() {
    let in_progress = "{\"code\":\"idempotency_in_progress\",\"retry\":\"same-key\"}";
    let told = Act::Answer(
        409,
        vec![
            ("content-type", "application/problem+json".to_owned()),
            ("retry-after", "3".to_owned()),
        ],
        in_progress.to_owned(),
    );
    let date = with(503, "retry-after", "Sun, 06 Nov 1994 08:49:47 GMT");
    for (act, least_s) in [(told, 3), (date, 10), (with(429, "retry-after", "5"), 5)] {
        let time = TestTime::default();
        let (end, received) = send(&time, &[act, with(201, REPLAYED, "true")]).await;
        assert_eq!((name(&end), received.len()), ("replayed", 2));
        assert_waits(&time, &[Duration::from_secs(least_s)]);
    }
    let time = TestTime::default();
    let pushback = with(503, "grpc-retry-pushback-ms", "1234");
    send(&time, &[pushback, answer(201)]).await.0.unwrap();
    assert_eq!(time.waits(), [Duration::from_millis(1234)]);
}

// R153, R155
#[tokio::test]
async fn the_retry_member_and_stripes_header_overrule_the_status() {
    let same_key = problem(400, "{\"code\":\"request_incomplete\",\"retry\":\"same-key\"}");
    for act in [same_key, with(400, "stripe-should-retry", "true")] {
        let (end, received) = send(&TestTime::default(), &[act, answer(201)]).await;
        assert_eq!((name(&end), received.len()), ("fresh", 2));
    }
}

// R159
#[tokio::test]
async fn a_server_that_cannot_be_reached_costs_one_attempt_less() {
    let time = TestTime::default();
    let address = Server::start(&time, []).await.address;
    let attempts = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = attempts.clone();
    let retries = time.retries().with_observer(move |event| {
        if let onlyonce::client::Event::Attempt { .. } = event {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    let client = time.client().with_retries(retries);
    let end = client.post(&format!("http://{address}/charges")).body(BODY).send().await;
    let Err(SendError::NotThrough { stop, source, .. }) = end else { panic!("{end:?}") };
    assert_eq!(stop, Stop::Attempts);
    assert!(source.is_some());
    assert_eq!(attempts.load(std::sync::atomic::Ordering::SeqCst), 5);
}

// R158; threat J5
#[tokio::test]
async fn an_operation_that_never_ends_is_asked_about_until_the_deadline_and_no_longer() {
    let time = TestTime::default();
    let server = Server::start(&time, vec![with(409, "retry-after", "5"); 100]).await;
    let end = time.client().post(&server.url()).body(BODY).send().await.unwrap();
    let advice = end.advice();
    let SendOutcome::Unknown { doubt, stop, last, .. } = end else { panic!("{end:?}") };
    assert_eq!((doubt, stop), (Doubt::Conflict, Stop::Deadline));
    assert_eq!(last.unwrap().status, 409);
    assert!(advice.starts_with("The service answered 409, which may mean"), "{advice}");
    let total: Duration = time.waits().iter().sum();
    assert!(total < Duration::from_secs(60), "{total:?}");
    assert!(server.received().len() > 4);
    assert_same_bytes_but_body(&server.received());
}

fn assert_same_bytes_but_body(received: &[Received]) {
    let key = received[0].header("idempotency-key");
    assert!(received.iter().all(|request| request.header("idempotency-key") == key));
}

// R158
#[tokio::test]
async fn the_deadline_goes_along_and_is_the_same_each_time() {
    let time = TestTime::default();
    let (_, received) = send(&time, &[answer(503), answer(201)]).await;
    for request in &received {
        assert_eq!(request.header("x-request-deadline"), Some("1994-11-06T08:50:37.000Z"));
    }
}

// R157; case CLI-06
#[tokio::test]
async fn retries_stop_when_the_shared_budget_is_half_used() {
    let time = TestTime::default();
    let server = Server::start(&time, vec![with(429, "grpc-retry-pushback-ms", "0"); 6]).await;
    let client = time.client();
    let mut ends = Vec::new();
    for _ in 0..3 {
        ends.push(client.post(&server.url()).send().await.unwrap_err());
    }
    let stops = ends.iter().map(|end| match end {
        SendError::NotThrough { stop, .. } => *stop,
        other => panic!("{other:?}"),
    });
    // Four attempts of the first, one of the second, one of the third.
    assert_eq!(stops.collect::<Vec<_>>(), [Stop::Attempts, Stop::Budget, Stop::Budget]);
    assert_eq!(server.received().len(), 6);
}

// R149, R162; case CLI-09; threat J4
#[tokio::test]
async fn two_operations_have_two_keys_also_at_the_same_time() {
    let time = TestTime::default();
    let server = Server::start(&time, vec![answer(201); 20]).await;
    let client = time.client();
    let sends = (0..20).map(|_| client.post(&server.url()).body(BODY).send());
    futures_util::future::try_join_all(sends).await.unwrap();
    let received = server.received();
    let keys: std::collections::HashSet<_> =
        received.iter().map(|request| request.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys.len(), 20);
}

// R149
#[tokio::test]
async fn a_request_keeps_its_key_however_often_it_is_sent() {
    let time = TestTime::default();
    let server = Server::start(&time, vec![answer(201); 2]).await;
    let request = time.client().post(&server.url()).body(BODY);
    let key = request.key().clone();
    request.clone().send().await.unwrap();
    request.send().await.unwrap();
    for request in server.received() {
        assert_eq!(request.header("idempotency-key"), Some(key.as_str()));
    }
}

// R150
#[tokio::test]
async fn a_derived_key_is_sent_as_it_is_and_may_be_quoted() {
    let time = TestTime::default();
    let key = Key::derive(["order", "17"]);
    let server = Server::start(&time, vec![answer(201); 2]).await;
    time.client().post(&server.url()).with_key(key.clone()).send().await.unwrap();
    let quoting = time.client().with_retries(time.retries().with_quoted_key());
    quoting.post(&server.url()).with_key(key.clone()).send().await.unwrap();
    let keys: Vec<_> = server
        .received()
        .iter()
        .map(|one| one.header("idempotency-key").unwrap().to_owned())
        .collect();
    assert_eq!(keys, [key.as_str().to_owned(), format!("\"{}\"", key.as_str())]);
}

#[tokio::test]
async fn an_answer_larger_than_is_read_says_that_it_happened() {
    let time = TestTime::default();
    let large = Act::Answer(201, Vec::new(), "x".repeat(100));
    let server = Server::start(&time, [large]).await;
    let client = time.client().with_retries(time.retries().with_answer_bytes_max(99));
    let end = client.post(&server.url()).send().await.unwrap();
    assert!(matches!(end, SendOutcome::Done { original_status, .. } if original_status == 201));
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_says_so_and_sends_nothing() {
    let client = TestTime::default().client();
    for url in
        ["", "shop.test/charges", "ftp://shop.test/", "http://me:secret@shop.test/", "http:// "]
    {
        let end = client.post(url).send().await;
        assert!(matches!(end, Err(SendError::Request(_))), "{url}");
    }
    let end = client.post("http://shop.test/").header("na me", "value").send().await;
    assert!(matches!(end, Err(SendError::Request(_))));
}
