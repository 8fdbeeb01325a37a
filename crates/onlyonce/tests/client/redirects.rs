//! Redirects: within the origin with the key, to another one not at all.

use onlyonce::client::{Journal, SendOutcome};
use onlyonce::key::Key;

use crate::environment::TestTime;
use crate::server::{Act, Server, answer, with};

// R160
#[tokio::test]
async fn key_and_body_go_along_within_the_origin() {
    for status in [307, 308] {
        let time = TestTime::default();
        let script = [with(status, "location", "/v2/charges"), answer(503), answer(201)];
        let server = Server::start(&time, script).await;
        let end = time.client().post(&server.url()).body("amount=1").send().await.unwrap();
        assert_eq!(end.name(), "fresh");
        let received = server.received();
        let lines: Vec<_> = received.iter().map(|one| one.line.as_str()).collect();
        let moved = "POST /v2/charges HTTP/1.1";
        assert_eq!(lines, ["POST /charges HTTP/1.1", moved, moved]);
        for request in &received {
            assert_eq!(request.body, b"amount=1");
            assert_eq!(request.header("idempotency-key"), received[0].header("idempotency-key"));
        }
    }
}

// R160
#[tokio::test]
async fn another_origin_is_reported_and_hears_nothing() {
    let time = TestTime::default();
    let stranger = Server::start(&time, []).await;
    let server = Server::start(&time, [with(307, "location", &stranger.url())]).await;
    let end = time.client().post(&server.url()).body("amount=1").send().await.unwrap();
    let SendOutcome::Rejected { answer, elsewhere, .. } = &end else { panic!("{end:?}") };
    assert_eq!(answer.status, 307);
    assert_eq!(elsewhere.as_deref(), Some(stranger.url().as_str()));
    assert!(end.advice().contains("another origin"));
    assert!(stranger.received().is_empty());
}

// R160
#[tokio::test]
async fn see_other_is_read_without_the_key() {
    let time = TestTime::default();
    let result = Act::Answer(200, Vec::new(), "paid".to_owned());
    let server = Server::start(&time, [with(303, "location", "/charges/7"), result]).await;
    let request = time.client().post(&server.url()).header("authorization", "Bearer me");
    let end = request.json(&7).send().await.unwrap();
    let SendOutcome::Fresh(answer) = end else { panic!("{end:?}") };
    assert_eq!(answer.text(), "paid");
    let got = &server.received()[1];
    assert_eq!(got.line, "GET /charges/7 HTTP/1.1");
    assert_eq!(got.header("idempotency-key"), None);
    assert_eq!(got.header("idempotency-attempt"), None);
    assert_eq!(got.header("content-type"), None);
    assert_eq!(got.header("authorization"), Some("Bearer me"));
    assert!(got.body.is_empty());
}

// R160
#[tokio::test]
async fn what_happened_is_done_although_its_result_is_not_there() {
    let time = TestTime::default();
    let server = Server::start(&time, [with(303, "location", "/charges/7"), answer(404)]).await;
    let end = time.client().post(&server.url()).send().await.unwrap();
    assert!(
        matches!(end, SendOutcome::Done { original_status, .. } if original_status == 303),
        "{end:?}"
    );
}

// R160; threat J5
#[tokio::test]
async fn a_circle_of_redirects_ends() {
    let time = TestTime::default();
    let server = Server::start(&time, vec![with(307, "location", "/charges"); 100]).await;
    let end = time.client().post(&server.url()).send().await;
    assert!(end.unwrap_err().to_string().contains("too many redirects"));
    assert_eq!(server.received().len(), 6);
}

// R160: some services redirect to a login page, others to the result of what they did.
#[tokio::test]
async fn a_redirect_that_does_not_say_whether_it_happened_is_unknown() {
    let time = TestTime::default();
    let stranger = Server::start(&time, []).await;
    let login = stranger.url();
    let mut script: Vec<_> =
        [300, 301, 302, 305].map(|status| with(status, "location", "/login")).into();
    script.extend([301, 302, 303].map(|status| with(status, "location", &login)));
    script.extend([301, 302, 303, 304, 307, 308].map(answer));
    for act in script {
        let server = Server::start(&time, [act.clone()]).await;
        let end = time.client().post(&server.url()).send().await.unwrap();
        assert_eq!(end.name(), "unknown", "{act:?}");
        assert_eq!(server.received().len(), 1, "{act:?}");
        assert!(end.answer().is_some_and(|last| last.status.is_redirection()));
    }
    assert!(stranger.received().is_empty());
}

// R152, R160; threats J1, K6: elsewhere the same key is another operation.
#[tokio::test]
async fn an_operation_that_moved_goes_on_where_it_was_last_sent() {
    for seal in [None, Some([7; 32])] {
        let (time, folder) = (TestTime::default(), tempfile::tempdir().unwrap());
        let script =
            [with(307, "location", "/v2/charges?a=1"), Act::ResetBefore, answer(404), answer(201)];
        let server = Server::start(&time, script).await;
        let journal = Journal::open(folder.path().join("journal")).await.unwrap();
        let journal = match seal {
            Some(seal) => journal.sealed(seal),
            None => journal,
        };
        let once = time.client().with_retries(time.retries().with_attempts(1));
        let once = once.with_journal(journal.clone());
        let charge =
            once.post(&server.url()).with_key(Key::derive(["order", "1"])).body("amount=1");
        assert_eq!(charge.clone().send().await.unwrap().name(), "unknown");
        let [open] = &journal.entries().await.unwrap()[..] else { panic!("it is gone") };
        assert!(open.target.as_ref().unwrap().ends_with("/v2/charges"), "{open:?}");
        // By a resume, and by the same command.
        once.resume().await.unwrap();
        assert_eq!(charge.send().await.unwrap().name(), "fresh");
        let received = server.received();
        for request in &received[1..] {
            assert_eq!(request.line, "POST /v2/charges?a=1 HTTP/1.1");
            assert_eq!(request.body, b"amount=1");
        }
        assert_eq!(server.left(), 0);
    }
}
