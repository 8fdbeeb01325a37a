//! What a server tells about itself: how long it keeps keys, and what became of an operation.

use std::time::Duration;

use onlyonce::client::{Client, Journal, Retries, SendOutcome, Stop};

use crate::environment::{ATTEMPT_TIMEOUT, TestTime};
use crate::server::{Act, Server, answer, problem, with};

fn json(body: &str) -> Act {
    Act::Answer(200, vec![("content-type", "application/json".to_owned())], body.to_owned())
}

/// One that asks the server, as every client does that was not told.
fn asking(time: &TestTime) -> Client {
    let retries = Retries::new().with_environment(time.clone());
    Client::new().with_retries(retries.with_attempt_timeout(ATTEMPT_TIMEOUT))
}

const ROUTES: &str = "{\"routes\":[{\"match\":\"POST /other\",\"ttl\":86400},{\"match\":\"POST /charges\",\"ttl\":20},{\"match\":\"*\",\"ttl\":3600}]}";

// R107, R116, R158; threats F10, J2
#[tokio::test]
async fn nothing_is_sent_again_after_the_window_that_the_server_tells() {
    let time = TestTime::default();
    let later = Act::Answer(500, vec![("retry-after", "30".to_owned())], String::new());
    let not_found = answer(404);
    let server = Server::start(&time, [later, json(ROUTES), not_found]).await;
    let end = asking(&time).post(&server.url()).send().await.unwrap();
    let SendOutcome::Unknown { stop, .. } = &end else { panic!("{end:?}") };
    assert_eq!(*stop, Stop::Window);
    assert!(end.advice().contains("Reconcile"), "{}", end.advice());
    let lines: Vec<_> = server.received().into_iter().map(|one| one.line).collect();
    assert_eq!(lines[1], "GET /.well-known/idempotency HTTP/1.1");
    assert!(
        lines[2].starts_with("GET /.well-known/idempotency/operation?method=POST&path=/charges")
    );
    assert_eq!(lines.len(), 3);
}

// R158
#[tokio::test]
async fn an_operation_that_would_be_unknown_is_looked_up_with_its_key() {
    let time = TestTime::default();
    let failed = answer(502);
    let script = [
        failed.clone(),
        json("{\"routes\":[{\"match\":\"*\",\"ttl\":3600}]}"),
        failed.clone(),
        failed.clone(),
        failed,
        json("{\"state\":\"completed\",\"status\":201}"),
    ];
    let server = Server::start(&time, script).await;
    let request = asking(&time).post(&server.url()).header("authorization", "Bearer me");
    let end = request.body("amount=1").send().await.unwrap();
    let SendOutcome::Done { original_status, may_be_replayed } = end else { panic!("{end:?}") };
    assert_eq!((original_status.as_u16(), may_be_replayed), (201, true));
    assert!(end.advice().contains("again with the same key to get the answer"), "{}", end.advice());
    let received = server.received();
    let (first, asked) = (&received[0], &received[5]);
    assert_eq!(asked.header("idempotency-key"), first.header("idempotency-key"));
    assert_eq!(asked.header("authorization"), Some("Bearer me"));
    assert!(asked.body.is_empty());
}

#[tokio::test]
async fn a_server_that_tells_nothing_is_asked_once() {
    let time = TestTime::default();
    let script = [answer(500), answer(404), answer(201), answer(500), answer(201)];
    let server = Server::start(&time, script).await;
    let client = asking(&time);
    assert_eq!(client.post(&server.url()).send().await.unwrap().name(), "fresh");
    time.pass(Duration::from_secs(10));
    assert_eq!(client.post(&server.url()).send().await.unwrap().name(), "fresh");
    assert_eq!(server.left(), 0);
}

// R158, R161; threat K6
#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_looked_up() {
    for (status, expected) in [(201, "done"), (402, "rejected"), (500, "unknown")] {
        let time = TestTime::default();
        let state = format!("{{\"state\":\"completed\",\"status\":{status}}}");
        let routes = json("{\"routes\":[{\"match\":\"*\",\"ttl\":3600}]}");
        let script = [Act::ResetBefore, routes, answer(402), json(&state)];
        let server = Server::start(&time, script).await;
        let end = asking(&time).post(&server.url()).send().await.unwrap();
        assert_eq!(end.name(), expected, "{status} on record");
        assert_eq!(server.left(), 0);
    }
}

// The record of a key that belongs to another request says nothing of this one.
#[tokio::test]
async fn a_reused_key_is_not_looked_up_by_this_run_or_the_next() {
    let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
    let reused = problem(422, "{\"code\":\"idempotency_key_reused\",\"retry\":\"new-key\"}");
    let routes = json("{\"routes\":[{\"match\":\"*\",\"ttl\":3600}]}");
    let script = [Act::ResetBefore, routes, reused];
    let server = Server::start(&time, script).await;
    let journal = Journal::open(folder.path().join("journal")).await.unwrap();
    let once = asking(&time).with_journal(journal.clone());
    let end = once.post(&server.url()).send().await.unwrap();
    assert!(matches!(end, SendOutcome::Unknown { stop: Stop::KeyReused, .. }), "{end:?}");
    assert!(end.advice().contains("Reconcile"), "{}", end.advice());
    let [open] = &journal.entries().await.unwrap()[..] else { panic!("it is gone") };
    assert!(open.needs_reconciling);
    let resumed = once.resume().await.unwrap();
    let [(_, Ok(SendOutcome::Unknown { stop, .. }))] = &resumed.operations[..] else {
        panic!("{resumed:?}")
    };
    assert_eq!(*stop, Stop::KeyReused);
    assert_eq!((server.received().len(), server.left()), (3, 0));
}

// R160
#[tokio::test]
async fn an_operation_that_moved_is_looked_up_where_it_moved() {
    let time = TestTime::default();
    let script = [
        with(307, "location", "/v2/charges"),
        Act::ResetBefore,
        json("{\"routes\":[{\"match\":\"*\",\"ttl\":3600}]}"),
        answer(404),
        json("{\"state\":\"completed\",\"status\":201}"),
    ];
    let server = Server::start(&time, script).await;
    let end = asking(&time).post(&server.url()).send().await.unwrap();
    assert_eq!(end.name(), "done");
    let asked = &server.received()[4];
    assert!(asked.line.contains("path=/v2/charges "), "{}", asked.line);
    assert!(asked.header("idempotency-key").is_some());
}
