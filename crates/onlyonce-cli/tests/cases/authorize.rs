//! `authorize`: a caller that lost its rights is answered by the service, and never from a record.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::Set;
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, B2, K1, K2, on_gateway, until, within};

on_gateway! {
    r180_a_revoked_caller_gets_the_refusal_of_the_service,
    r180_every_way_to_hear_of_a_record_is_asked_about,
    r180_a_waiter_that_was_revoked_meanwhile_hears_nothing,
    r180_where_the_service_does_not_say_nothing_is_replayed,
    r180_a_good_answer_is_believed_for_its_seconds,
    r180_callers_who_ask_together_are_one_question,
    r180_a_result_is_not_fetched_for_a_revoked_caller,
}

/// In the stored answer, and in nothing that a revoked caller gets.
const CANARY: &str = "canary-5f1c";
const EACH_TIME: Set = Set::Toml("authorize = \"GET /whoami?brief=1\"\nauthorize_for = \"0s\"");

async fn asking(on: Kind, more: &[Set]) -> Subject {
    let t = on.start(&[&[EACH_TIME], more].concat()).await;
    t.u.plan("/t", [stored()]);
    t
}

fn stored() -> Reply {
    Reply::status(201).header("Location", CANARY).header("X-Charge", CANARY).body(CANARY)
}

fn no(status: u16) -> Reply {
    let no = Reply::status(status).header("WWW-Authenticate", "Bearer error=\"invalid_token\"");
    no.header("Content-Type", "text/plain").header("X-Internal", "no business of theirs").body("no")
}

fn ask() -> Ask {
    Ask::post(B1).key(K1).tenant("ann")
}

fn look_up() -> Ask {
    let target = "/.well-known/idempotency/operation?method=POST&path=/t";
    Ask::bare("GET", target).key(K1).tenant("ann")
}

#[track_caller]
fn tells_nothing(answer: &Answer) {
    let whole = format!("{answer:?} {}", String::from_utf8_lossy(&answer.body));
    assert!(!whole.contains(CANARY) && !whole.contains("completed"), "{whole}");
    assert_eq!(answer.all("idempotent-replayed"), [""; 0]);
}

// R180; threat G11
async fn r180_a_revoked_caller_gets_the_refusal_of_the_service(on: Kind) {
    let mut t = asking(on, &[]).await;
    let first = t.send(&ask()).await.fresh(201);
    assert_eq!(t.u.count("/whoami"), 0, "the service judges what is executed itself");
    t.send(&ask().header("Cookie", "_ga=1")).await.replays(&first);
    let asked = t.u.seen().pop().unwrap();
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/whoami?brief=1"));
    assert_eq!(asked.header("authorization"), Some("Bearer tok_ann"));
    assert_eq!((asked.header("cookie"), asked.header("host")), (Some("_ga=1"), Some("api.test")));
    for name in ["idempotency-key", "content-type", "content-length"] {
        assert_eq!(asked.header(name), None, "{name}");
    }
    for status in [401, 403] {
        t.u.plan("/whoami", [no(status)]);
        let refused = t.send(&ask()).await;
        tells_nothing(&refused);
        assert_eq!((refused.status, &refused.body[..]), (status, &b"no"[..]));
        assert_eq!(refused.all("www-authenticate"), ["Bearer error=\"invalid_token\""]);
        assert_eq!(refused.all("content-type"), ["text/plain"]);
        assert_eq!(refused.all("cache-control"), ["no-store"]);
        assert_eq!(refused.all("x-internal"), [""; 0]);
    }
    assert_eq!(t.metric("onlyonce_unauthorized_total{route=\"default\"}").await, 2);
    assert_eq!(t.metric("onlyonce_replayed_total{route=\"default\"}").await, 1);
    // From the store, not from memory.
    t.kill_and_restart().await;
    let refused = t.send(&ask()).await;
    tells_nothing(&refused);
    assert_eq!(refused.status, 403);
    t.u.plan("/whoami", [Reply::status(204)]);
    t.send(&ask()).await.replays(&first);
    assert_eq!(t.n(), 1);
    let log = t.end_and_read_logs().await;
    assert!(!log.contains("tok_ann") && !log.contains(K1), "{log}");
}

// R180
async fn r180_every_way_to_hear_of_a_record_is_asked_about(on: Kind) {
    let t = asking(on, &[]).await;
    t.send(&ask()).await.fresh(201);
    t.u.plan("/broken", [Reply::reset()]);
    let broken = ask().to("/broken");
    t.send(&broken).await.problem(502, "idempotency_outcome_unknown");
    let reused = ask().saying(B2);
    t.u.plan("/whoami", [Reply::status(200)]);
    t.send(&reused).await.problem(422, "idempotency_key_reused");
    t.send(&broken).await.problem(409, "idempotency_outcome_unknown");
    assert_eq!(t.send(&look_up()).await.json()["state"], "completed");
    t.u.plan("/whoami", [no(401)]);
    for ask in [ask(), reused, broken, look_up()] {
        let refused = t.send(&ask).await;
        tells_nothing(&refused);
        assert_eq!((refused.status, &refused.body[..]), (401, &b"no"[..]), "{ask:?}");
    }
    // A key that was never used tells nothing, and a new one is the service's to judge.
    t.send(&look_up().replaced("Idempotency-Key", K2))
        .await
        .problem(404, "idempotency_operation_not_found");
    t.send(&Ask::post(B1).key(K2).tenant("ann")).await.fresh(201);
    assert_eq!(t.n(), 2);
}

// R180
async fn r180_a_waiter_that_was_revoked_meanwhile_hears_nothing(on: Kind) {
    let t = Arc::new(asking(on, &[Set::WaitMs(30_000)]).await);
    let gate = Gate::new();
    t.u.plan("/t", [stored().behind(&gate)]);
    t.u.plan("/whoami", [no(401)]);
    let send = |t: &Arc<Subject>| {
        let t = t.clone();
        tokio::spawn(async move { t.send(&ask()).await })
    };
    let first = send(&t);
    until("the execution", || t.n() == 1).await;
    let waiter = send(&t);
    t.until_waiting(1).await;
    gate.open();
    first.await.unwrap().fresh(201);
    let refused = waiter.await.unwrap();
    tells_nothing(&refused);
    assert_eq!((refused.status, t.n()), (401, 1));
}

// R180
async fn r180_where_the_service_does_not_say_nothing_is_replayed(on: Kind) {
    let timeout = Set::UpstreamTimeoutMs(1_000);
    let mut t = asking(on, std::slice::from_ref(&timeout)).await;
    let first = t.send(&ask()).await.fresh(201);
    let never = Gate::new();
    let unclear = [500, 503, 404, 429].map(Reply::status).into_iter().chain([
        Reply::status(302).header("Location", "/login"),
        Reply::reset(),
        Reply::status(200).behind(&never),
    ]);
    for reply in unclear {
        t.u.plan("/whoami", [reply]);
        for ask in [ask(), look_up()] {
            let answer = t.send(&ask).await;
            tells_nothing(&answer);
            assert_eq!(answer.problem(502, "authorization_unknown")["retry"], "same-key");
            assert_eq!(answer.retry_after_s(), 1);
        }
    }
    // A service that is not there at all.
    let nowhere = Set::Toml("upstream = \"http://127.0.0.1:9\"");
    t.reconfigure(&[EACH_TIME, timeout.clone(), nowhere]).await;
    let answer = t.send(&ask()).await;
    tells_nothing(&answer);
    answer.problem(502, "authorization_unknown");
    t.reconfigure(&[EACH_TIME, timeout]).await;
    t.u.plan("/whoami", [Reply::status(200)]);
    t.send(&ask()).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// R180
async fn r180_a_good_answer_is_believed_for_its_seconds(on: Kind) {
    let t = on.start(&[Set::Toml("authorize = \"GET /whoami\"\nauthorize_for = \"2s\"")]).await;
    t.u.plan("/t", [stored()]);
    let bob = ask().replaced("Authorization", "Bearer tok_bob");
    let first = t.send(&ask()).await.fresh(201);
    t.send(&bob).await.fresh(201);
    t.send(&ask()).await.replays(&first);
    t.u.plan("/whoami", [no(401)]);
    // Nobody is believed for the sake of another.
    assert_eq!(t.send(&bob).await.status, 401);
    let asked = t.u.count("/whoami");
    assert_eq!(asked, 2);
    t.send(&ask()).await.replays(&first);
    assert_eq!(t.u.count("/whoami"), asked, "believed");
    // A refusal is not kept: the service may change its mind at once.
    assert_eq!((t.send(&bob).await.status, t.u.count("/whoami")), (401, asked + 1));
    within("the revoked caller to be found out", async {
        while t.send(&ask()).await.status == 201 {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let refused = t.send(&ask()).await;
    tells_nothing(&refused);
    assert_eq!((refused.status, t.n()), (401, 2));
}

// R180
async fn r180_callers_who_ask_together_are_one_question(on: Kind) {
    let t = Arc::new(asking(on, &[]).await);
    let first = t.send(&ask()).await.fresh(201);
    let gate = Gate::new();
    t.u.plan("/whoami", [Reply::status(200).behind(&gate), no(401)]);
    let send = |t: &Arc<Subject>| {
        let t = t.clone();
        tokio::spawn(async move { t.send(&ask()).await })
    };
    let retries: Vec<_> = (0..20).map(|_| send(&t)).collect();
    until("the question", || t.u.count("/whoami") == 1).await;
    // When these have passed through the gateway, so have some of those before them.
    for _ in 0..8 {
        t.send(&Ask::bare("GET", "/other")).await.fresh(200);
    }
    gate.open();
    for retry in retries {
        let answer = retry.await.unwrap();
        match answer.status {
            201 => drop(answer.replays(&first)),
            // One that came after the answer has a question of its own.
            status => assert_eq!(status, 401),
        }
    }
    assert!(t.u.count("/whoami") < 20, "{}", t.u.count("/whoami"));
    assert_eq!(t.n(), 1);
}

// R180
async fn r180_a_result_is_not_fetched_for_a_revoked_caller(on: Kind) {
    let t = asking(on, &[Set::Keep("location")]).await;
    t.u.plan("/t", [Reply::status(202).header("Location", "/jobs/7").body("queued")]);
    t.u.plan("/jobs/7", [Reply::status(200).body(CANARY)]);
    t.send(&ask()).await.fresh(202);
    t.u.plan("/whoami", [no(403)]);
    let refused = t.send(&ask()).await;
    tells_nothing(&refused);
    assert_eq!((refused.status, refused.all("location"), t.u.count("/jobs/7")), (403, vec![], 0));
    t.u.plan("/whoami", [Reply::status(200)]);
    assert_eq!(&t.send(&ask()).await.body[..], CANARY.as_bytes());
    assert_eq!(t.n(), 1);
}
