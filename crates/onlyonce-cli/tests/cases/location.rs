//! `keep`: what of an answer is kept, and what a retry gets instead of the rest.

use std::sync::Arc;

use crate::client::Ask;
use crate::profile::Set;
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, B2, K1, on_both, until, within};

on_both! {
    a_retry_gets_what_the_location_has_now,
    a_retry_asks_with_the_credentials_of_its_caller,
    what_is_not_to_be_seen_is_not_shown,
    what_is_gone_is_not_executed_again,
    a_location_that_is_not_given_is_asked_for_again,
    a_location_that_does_not_answer_is_given_up_in_time,
    a_location_that_leads_on_is_not_followed,
    a_location_elsewhere_is_left_to_the_client,
    a_waiter_gets_what_the_location_has,
    an_answer_without_a_location_is_kept_whole,
    a_large_answer_needs_only_its_location,
    another_request_is_refused_and_fetches_nothing,
    of_the_status_alone_a_retry_learns_no_more,
}

/// A route whose answers are 202 with a `Location`.
async fn long_work(on: Kind) -> Subject {
    let t = on.start(&[Set::Keep("location"), Set::UpstreamTimeoutMs(2_000)]).await;
    t.u.plan("/t", [accepted()]);
    t
}

fn accepted() -> Reply {
    Reply::status(202).header("Location", "/jobs/7?full=1").header("X-Queue", "3").body("queued")
}

fn job(state: &'static str) -> Reply {
    Reply::status(200).header("Content-Type", "text/plain").header("ETag", state).body(state)
}

// `keep = "location"`
// R67
async fn a_retry_gets_what_the_location_has_now(on: Kind) {
    let t = long_work(on).await;
    t.u.plan("/jobs/7", [job("\"running\""), job("\"done\"")]);
    let first = t.post(K1, B1).await.fresh(202);
    assert_eq!(&first.body[..], b"queued");
    for state in ["\"running\"", "\"done\"", "\"done\""] {
        let retry = t.post(K1, B1).await;
        assert_eq!((retry.status, retry.all("idempotent-replayed")), (202, vec!["true"]));
        assert_eq!(retry.all("location"), ["/jobs/7?full=1"]);
        assert_eq!(retry.all("content-type"), ["text/plain"]);
        assert_eq!(retry.all("etag"), [state]);
        assert_eq!(retry.all("x-queue"), [""; 0], "nothing else of the first answer is kept");
        assert_eq!(&retry.body[..], state.as_bytes());
    }
    assert_eq!(t.n(), 1);
    let asked = t.u.seen().pop().unwrap();
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/jobs/7?full=1"));
}

async fn a_retry_asks_with_the_credentials_of_its_caller(on: Kind) {
    let t = long_work(on).await;
    let ask = Ask::post(B1).key(K1).tenant("a");
    t.send(&ask).await.fresh(202);
    let retry = ask.header("Accept", "text/plain").header("If-None-Match", "\"x\"");
    let retry = retry.header("Range", "bytes=0-0").header("Idempotency-Attempt", "9");
    assert_eq!(t.send(&retry).await.status, 202);
    let asked = t.u.seen().pop().unwrap();
    assert_eq!(asked.header("authorization"), Some("Bearer tok_a"));
    assert_eq!(asked.header("accept"), Some("text/plain"));
    assert_eq!(asked.header("host"), Some("api.test"));
    for name in [
        "idempotency-key",
        "idempotency-attempt",
        "content-type",
        "content-length",
        "if-none-match",
        "range",
    ] {
        assert_eq!(asked.header(name), None, "{name}");
    }
    assert_eq!(asked.body.len(), 0);
}

// A caller may have lost its rights since the first answer.
async fn what_is_not_to_be_seen_is_not_shown(on: Kind) {
    let t = long_work(on).await;
    let no = |status| Reply::status(status).header("WWW-Authenticate", "Bearer").body("no");
    t.u.plan("/jobs/7", [no(401), no(403), job("done")]);
    t.post(K1, B1).await.fresh(202);
    for status in [401, 403] {
        let refused = t.post(K1, B1).await.fresh(status);
        assert_eq!(refused.all("www-authenticate"), ["Bearer"]);
        assert_eq!((&refused.body[..], refused.all("location")), (&b"no"[..], vec![]));
    }
    assert_eq!(&t.post(K1, B1).await.body[..], b"done");
    assert_eq!(t.n(), 1);
}

async fn what_is_gone_is_not_executed_again(on: Kind) {
    let t = long_work(on).await;
    t.u.plan("/jobs/7", [Reply::status(404), Reply::status(410)]);
    t.post(K1, B1).await.fresh(202);
    // It may only not be there yet.
    let not_found = t.post(K1, B1).await;
    assert_eq!((not_found.status, not_found.all("location")), (202, vec!["/jobs/7?full=1"]));
    assert_eq!(not_found.all("idempotent-replayed"), ["true"]);
    let gone = t.post(K1, B1).await.problem(410, "idempotency_response_unavailable");
    assert_eq!((&gone["original_status"], &gone["retry"]), (&202.into(), &"never".into()));
    assert_eq!(t.n(), 1);
}

async fn a_location_that_is_not_given_is_asked_for_again(on: Kind) {
    let t = long_work(on).await;
    let failures = [500, 503, 429].map(Reply::status);
    t.u.plan("/jobs/7", failures.into_iter().chain([Reply::reset(), job("done")]));
    t.post(K1, B1).await.fresh(202);
    for _ in 0..3 {
        let retry = t.post(K1, B1).await;
        let problem = retry.problem(503, "idempotency_response_not_sent");
        assert_eq!(problem["retry"], "same-key");
        // That would say that nothing was executed.
        assert_eq!(retry.all("retry-after"), [""; 0]);
    }
    // The handler of the library's server panics where its upstream breaks off.
    if on == Kind::Gateway {
        t.post(K1, B1).await.problem(503, "idempotency_response_not_sent");
        assert_eq!(&t.post(K1, B1).await.body[..], b"done");
    }
    assert_eq!(t.n(), 1);
}

async fn a_location_that_does_not_answer_is_given_up_in_time(on: Kind) {
    let t = on.start(&[Set::Keep("location"), Set::UpstreamTimeoutMs(300)]).await;
    t.u.plan("/t", [accepted()]);
    let gate = Gate::new();
    t.u.plan("/jobs/7", [job("done").behind(&gate)]);
    t.post(K1, B1).await.fresh(202);
    let retry = within("an answer", t.post(K1, B1)).await;
    retry.problem(503, "idempotency_response_not_sent");
    gate.open();
}

async fn a_location_that_leads_on_is_not_followed(on: Kind) {
    let t = long_work(on).await;
    t.u.plan("/jobs/7", [Reply::status(303).header("Location", "/results/1").body("see there")]);
    t.post(K1, B1).await.fresh(202);
    let retry = t.post(K1, B1).await;
    assert_eq!((retry.status, retry.all("location")), (202, vec!["/jobs/7?full=1"]));
    assert_eq!((retry.all("idempotent-replayed"), retry.body.len()), (vec!["true"], 0));
    assert_eq!((t.n(), t.u.count("/results/1")), (1, 0));
}

async fn a_location_elsewhere_is_left_to_the_client(on: Kind) {
    for elsewhere in ["http://other.test/jobs/7", "//other.test/jobs/7", "jobs/7"] {
        let t = long_work(on).await;
        t.u.plan("/t", [Reply::status(202).header("Location", elsewhere).body("queued")]);
        t.post(K1, B1).await.fresh(202);
        let retry = t.post(K1, B1).await;
        assert_eq!((retry.status, retry.all("location")), (202, vec![elsewhere]));
        assert_eq!((retry.all("idempotent-replayed"), retry.body.len()), (vec!["true"], 0));
        assert_eq!(t.u.total(), 1, "nobody was asked");
    }
    let t = long_work(on).await;
    t.u.plan("/t", [Reply::status(201).header("Location", "https://api.test/jobs/7")]);
    t.u.plan("/jobs/7", [job("done")]);
    t.post(K1, B1).await.fresh(201);
    assert_eq!(&t.post(K1, B1).await.body[..], b"done");
}

async fn a_waiter_gets_what_the_location_has(on: Kind) {
    let t = Arc::new(on.start(&[Set::Keep("location"), Set::WaitMs(20_000)]).await);
    let gate = Gate::new();
    t.u.plan("/t", [accepted().behind(&gate)]);
    t.u.plan("/jobs/7", [job("done")]);
    let ask = async |t: Arc<Subject>| t.post(K1, B1).await;
    let first = tokio::spawn(ask(t.clone()));
    until("the first runs", || t.n() == 1).await;
    let waiter = tokio::spawn(ask(t.clone()));
    t.until_waiting(1).await;
    gate.open();
    within("the first answer", first).await.unwrap().fresh(202);
    let waited = within("the waiter's", waiter).await.unwrap();
    assert_eq!((waited.status, &waited.body[..]), (202, &b"done"[..]));
    assert_eq!(t.n(), 1);
}

async fn an_answer_without_a_location_is_kept_whole(on: Kind) {
    let t = long_work(on).await;
    let wrong = Reply::status(422).header("Location", "/jobs/7").body("no such queue");
    t.u.plan("/t", [Reply::status(200).body("done at once"), wrong]);
    let first = t.post(K1, B1).await.fresh(200);
    t.post(K1, B1).await.replays(&first);
    let refused = t.post("another-key", B1).await.fresh(422);
    t.post("another-key", B1).await.replays(&refused);
    assert_eq!(t.u.total(), 2);
}

async fn a_large_answer_needs_only_its_location(on: Kind) {
    let t = on.start(&[Set::Keep("location"), Set::ResponseBytesMax(100)]).await;
    t.u.plan("/t", [accepted().body(vec![b'x'; 1_000])]);
    t.u.plan("/jobs/7", [job("done").body(vec![b'y'; 1_000])]);
    assert_eq!(t.post(K1, B1).await.fresh(202).body.len(), 1_000);
    let retry = t.post(K1, B1).await;
    assert_eq!((retry.status, &retry.body[..]), (202, &[b'y'; 1_000][..]));
    assert_eq!(t.n(), 1);
}

async fn another_request_is_refused_and_fetches_nothing(on: Kind) {
    let t = long_work(on).await;
    t.post(K1, B1).await.fresh(202);
    t.post(K1, B2).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.u.total(), 1);
}

async fn of_the_status_alone_a_retry_learns_no_more(on: Kind) {
    let t = on.start(&[Set::Keep("status")]).await;
    let first = t.post(K1, B1).await.fresh(201);
    assert_eq!(first.all("location").len(), 1);
    let retry = t.post(K1, B1).await;
    let problem = retry.problem(410, "idempotency_response_unavailable");
    assert_eq!(problem["original_status"], 201);
    assert_eq!(retry.all("location"), [""; 0]);
    assert_eq!(t.n(), 1);
}

/// The record outlives the process that wrote it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_the_location_is_fetched_too() {
    let mut t = long_work(Kind::Gateway).await;
    t.u.plan("/jobs/7", [job("done")]);
    t.post(K1, B1).await.fresh(202);
    t.kill_and_restart().await;
    assert_eq!(&t.post(K1, B1).await.body[..], b"done");
    // A route that has kept the Location only has nothing else to show, whatever it says today.
    t.reconfigure(&[]).await;
    let bare = t.post(K1, B1).await;
    assert_eq!(
        (bare.status, bare.all("location"), bare.body.len()),
        (202, vec!["/jobs/7?full=1"], 0)
    );
    assert_eq!(t.n(), 1);
}
