//! What a client sees, row by row.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Method, Request, Response, StatusCode};
use onlyonce::Policy;
use onlyonce::fingerprint::{FingerprintMode, FingerprintRules};
use onlyonce::http::{NotSent, UntilClose};
use onlyonce::key::KeySource;
use onlyonce::policy::{InFlight, Mismatch, Recovery};
use onlyonce::scope::Principal;
use support::{Answer, Guarded, created, post, tiered};
use tokio::sync::watch;

const KEY: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";
const BODY: &str = r#"{"amount":7998,"currency":"usd"}"#;
const OTHER_BODY: &str = r#"{"amount":9999,"currency":"usd"}"#;

/// A handler that answers once `open` says so.
fn gated(policy: Policy) -> (Guarded, watch::Sender<bool>) {
    let (open, opened) = watch::channel(false);
    let guarded = Guarded::new(policy, move |n| {
        let mut opened = opened.clone();
        async move {
            opened.wait_for(|open| *open).await.unwrap();
            created(n).await
        }
    });
    (guarded, open)
}

/// Runs `request` until it is at work.
async fn begin(guarded: &Guarded, request: Request<Body>) -> tokio::task::JoinHandle<Answer> {
    let before = guarded.executions();
    let sender = guarded.clone();
    let sent = tokio::spawn(async move { sender.send(request).await });
    until(|| guarded.executions() > before).await;
    sent
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it came true in time");
}

// R66, R68, R73; REP-01
#[tokio::test]
async fn a_retry_gets_the_first_answer_byte_for_byte() {
    let guarded = Guarded::counting(Policy::default());
    let first = guarded.post(KEY, BODY).await;
    assert_eq!(first.status, StatusCode::CREATED);
    for _ in 0..3 {
        guarded.post(KEY, BODY).await.assert_replays(&first);
    }
    assert_eq!(guarded.executions(), 1);
}

// R104, the other way round: nothing is answered by a cache that the store does not hold.
#[tokio::test]
async fn a_retry_is_answered_by_the_store_where_there_is_no_cache() {
    let store = onlyonce::store::memory::MemoryStore::new();
    let limits = onlyonce::Limits::default().with_cache_bytes_max(0);
    let once = onlyonce::Once::builder(store).with_limits(limits).build();
    let guarded = Guarded::on(once, Policy::default(), created);
    let first = guarded.post(KEY, BODY).await;
    guarded.post(KEY, BODY).await.assert_replays(&first);
    assert_eq!(guarded.executions(), 1);
}

// R32, R33, R62, R94; FPR-01
// threat G13
#[tokio::test]
async fn another_request_with_the_key_gets_422_and_changes_nothing() {
    let guarded = Guarded::counting(Policy::default());
    let first = guarded.post(KEY, BODY).await;
    let other = guarded.post(KEY, OTHER_BODY).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(other.problem(), "idempotency_key_reused");
    assert_eq!(other.retry(), "new-key");
    assert_eq!(other.json()["title"], "Idempotency-Key is already used");
    guarded.post(KEY, BODY).await.assert_replays(&first);
    assert_eq!(guarded.executions(), 1);
}

// FPR-02
#[tokio::test]
async fn a_route_may_answer_a_reused_key_with_409() {
    let policy = Policy::default().with_mismatch(Mismatch::Conflict);
    let guarded = Guarded::counting(policy);
    guarded.post(KEY, BODY).await;
    let other = guarded.post(KEY, OTHER_BODY).await;
    assert_eq!(
        (other.status, other.problem().as_str()),
        (StatusCode::CONFLICT, "idempotency_key_reused")
    );
    assert!(!other.headers.contains_key("retry-after"));
}

// R57, R58, R62, R64; CON-01, CON-09
#[tokio::test]
async fn while_the_first_runs_a_duplicate_gets_409_and_another_request_422() {
    let (guarded, open) = gated(Policy::default());
    let first = begin(&guarded, post(KEY, BODY)).await;
    let duplicate = guarded.post(KEY, BODY).await;
    assert_eq!(duplicate.status, StatusCode::CONFLICT);
    assert_eq!(duplicate.problem(), "idempotency_in_progress");
    assert_eq!(duplicate.headers["retry-after"], "1");
    assert_eq!(duplicate.retry(), "same-key");
    assert_eq!(guarded.post(KEY, OTHER_BODY).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    open.send_replace(true);
    let first = first.await.unwrap();
    guarded.post(KEY, BODY).await.assert_replays(&first);
    assert_eq!(guarded.executions(), 1);
}

// R59; CON-03
#[tokio::test]
async fn a_route_that_waits_gives_every_duplicate_the_first_answer() {
    let policy = Policy::default().with_in_flight(InFlight::Wait(Duration::from_secs(20)));
    let (guarded, open) = gated(policy);
    let first = begin(&guarded, post(KEY, BODY)).await;
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let guarded = guarded.clone();
            tokio::spawn(async move { guarded.post(KEY, BODY).await })
        })
        .collect();
    until(|| guarded.once.waiting() == 100).await;
    open.send_replace(true);
    let first = first.await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().assert_replays(&first);
    }
    assert_eq!((guarded.executions(), guarded.once.waiting()), (1, 0));
}

// R59, R61; CON-11
#[tokio::test]
async fn a_wait_that_ends_is_409_and_a_waiter_that_leaves_leaves_nothing() {
    let policy = Policy::default().with_in_flight(InFlight::Wait(Duration::from_millis(50)));
    let (guarded, open) = gated(policy);
    let first = begin(&guarded, post(KEY, BODY)).await;
    assert_eq!(guarded.post(KEY, BODY).await.problem(), "idempotency_in_progress");
    let leaver = guarded.clone();
    let leaver = tokio::spawn(async move { leaver.post(KEY, BODY).await });
    until(|| guarded.once.waiting() == 1).await;
    leaver.abort();
    until(|| guarded.once.waiting() == 0).await;
    open.send_replace(true);
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
}

// R15; SCP-01, SCP-02, SCP-09
#[tokio::test]
async fn a_key_is_asked_for_where_the_route_requires_one() {
    let guarded = Guarded::counting(Policy::payments());
    let keyless = || Request::post("/t").body(Body::from(BODY)).unwrap();
    let missing = guarded.send(keyless()).await;
    assert_eq!(
        (missing.status, missing.problem().as_str()),
        (StatusCode::BAD_REQUEST, "idempotency_key_missing")
    );
    assert_eq!(missing.json()["title"], "Idempotency-Key is missing");
    let get = Request::get("/t").body(Body::empty()).unwrap();
    assert_eq!(guarded.send(get).await.status, StatusCode::CREATED);
    let optional = Guarded::counting(Policy::default());
    optional.send(keyless()).await;
    assert!(!optional.send(keyless()).await.is_replay());
    assert_eq!(optional.executions(), 2);
}

// R20, R21; SCP-03, SCP-05, SCP-06
#[tokio::test]
async fn a_key_on_a_method_that_is_not_guarded_has_no_effect() {
    let guarded = Guarded::counting(Policy::default());
    for (round, method) in
        [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS].into_iter().enumerate()
    {
        for _ in 0..2 {
            let request =
                Request::builder().method(method.clone()).uri("/t").header("idempotency-key", KEY);
            assert!(!guarded.send(request.body(Body::empty()).unwrap()).await.is_replay());
        }
        assert_eq!(guarded.executions(), (round + 1) * 2, "{method}");
    }
}

// SCP-07
#[tokio::test]
async fn a_route_may_guard_other_methods() {
    let guarded = Guarded::counting(Policy::default().with_methods([Method::DELETE]));
    let delete =
        || Request::delete("/t").header("idempotency-key", KEY).body(Body::empty()).unwrap();
    let first = guarded.send(delete()).await;
    guarded.send(delete()).await.assert_replays(&first);
}

// R11, R85; SYN-09 to SYN-26 in short: the values of each are tried in the key's own tests.
#[tokio::test]
async fn a_malformed_key_is_400_before_the_body_is_read() {
    let guarded = Guarded::counting(Policy::default());
    let long = "k".repeat(256);
    for key in ["", "\"\"", "\"   \"", "a,b", "\"a\", \"b\"", "\"bad \\, escape\"", long.as_str()] {
        let unread = Body::from_stream(futures_util::stream::once(async {
            panic!("the body of a request with a bad key is never read");
            #[expect(unreachable_code, reason = "it gives the stream its type")]
            Ok::<Bytes, std::io::Error>(Bytes::new())
        }));
        let answer = guarded.send(post(key, unread)).await;
        assert_eq!(answer.problem(), "idempotency_key_invalid", "{key:?}");
        assert_eq!(answer.retry(), "new-key");
    }
    let doubled = Request::post("/t").header("idempotency-key", KEY).header("idempotency-key", KEY);
    let answer = guarded.send(doubled.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.problem(), "idempotency_key_invalid");
    assert_eq!(guarded.executions(), 0);
}

// R17, R18; SYN-37, SYN-38
#[tokio::test]
async fn a_key_may_be_found_in_the_body_and_must_agree_with_the_header() {
    let sources = ["json:/client_reference", "header:Idempotency-Key"];
    let sources = sources.map(|source| source.parse::<KeySource>().unwrap());
    let guarded = Guarded::counting(Policy::default().with_key_from(sources));
    let body = r#"{"client_reference":"po-1"}"#;
    let keyless = || {
        let request = Request::post("/t").header("content-type", "application/json");
        request.body(Body::from(body)).unwrap()
    };
    let first = guarded.send(keyless()).await;
    guarded.send(keyless()).await.assert_replays(&first);
    assert_eq!(guarded.post("po-2", body).await.problem(), "idempotency_key_invalid");
    assert_eq!(guarded.executions(), 1);
}

// R24, R31; SCP-15, SCP-17; threats G9, G10
#[tokio::test]
async fn two_callers_with_one_key_never_meet() {
    let (guarded, open) = gated(Policy::default());
    let of = |who: &str| {
        let mut request = post(KEY, BODY);
        request.headers_mut().insert("x-api-key", who.parse().unwrap());
        request
    };
    let first = begin(&guarded, of("a")).await;
    let second = begin(&guarded, of("b")).await;
    open.send_replace(true);
    assert_ne!(first.await.unwrap().body, second.await.unwrap().body);
    assert_eq!(guarded.executions(), 2);
}

// R25, R29; SCP-10, SCP-14, SCP-21, SCP-25
#[tokio::test]
async fn the_concrete_path_counts_and_its_spelling_does_not() {
    let guarded = Guarded::counting(Policy::default());
    let at = |path: &str| {
        let mut request = post(KEY, BODY);
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let first = guarded.send(at("/tA")).await;
    guarded.send(at("/t%41")).await.assert_replays(&first);
    guarded.send(at("/tA?")).await.assert_replays(&first);
    assert!(!guarded.send(at("/tB")).await.is_replay());
    assert_eq!(guarded.send(at("/tA?a=1")).await.problem(), "idempotency_key_reused");
    assert_eq!(guarded.executions(), 2);
}

#[tokio::test]
async fn who_is_asking_must_be_clear() {
    let guarded = Guarded::counting(Policy::default());
    let of = |who: &str| {
        let mut request = post(KEY, BODY);
        request.headers_mut().insert("x-api-key", who.parse().unwrap());
        request
    };
    let unclear = guarded.send(of("unclear")).await;
    assert_eq!(
        (unclear.problem().as_str(), unclear.retry().as_str()),
        ("principal_unclear", "never")
    );
    assert_eq!(unclear.status, StatusCode::BAD_REQUEST);
    assert_eq!(guarded.send(of("nobody")).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(guarded.executions(), 0);
}

/// As the examples have it: who has no key is nobody, and nobody shares an operation with a stranger.
// threat K3
#[tokio::test]
async fn callers_without_credentials_are_refused_where_the_principal_is_an_option() {
    let once = onlyonce::Once::new(onlyonce::store::memory::MemoryStore::new());
    let caller = |head: &http::request::Parts| {
        let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
        Some(Principal::of("api-key", api_key.as_bytes()))
    };
    let layer = once.layer(caller, Policy::default());
    let app = axum::Router::new().fallback(|| created(1)).layer(layer);
    use tower::ServiceExt;
    for (api_key, status) in [(None, 401), (Some(""), 401), (Some("ann"), 201)] {
        let mut request = post(KEY, BODY);
        if let Some(api_key) = api_key {
            request.headers_mut().insert("x-api-key", api_key.parse().unwrap());
        }
        assert_eq!(app.clone().oneshot(request).await.unwrap().status().as_u16(), status);
    }
}

// R34 to R46; FPR-05 to FPR-19
#[tokio::test]
async fn bodies_that_mean_the_same_are_the_same_request() {
    let guarded = Guarded::counting(Policy::default());
    let first = guarded.post(KEY, BODY).await;
    for same in [
        "{\"currency\":\"usd\",\"amount\":7998}",
        "{ \"amount\" : 7998.0,\n \"currency\" : \"\\u0075sd\" }",
        "{\"amount\":79.98e2,\"currency\":\"usd\"}",
    ] {
        guarded.post(KEY, same).await.assert_replays(&first);
    }
    assert_eq!(guarded.executions(), 1);
}

/// Bytes that two boundaries divide into other parts: an amount of 1, or of 1000.
const TWO_WAYS: &str = "--a\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n1\r\n--ab\r\n\
    Content-Disposition: form-data; name=\"amount\"\r\n\r\n1000\r\n--ab--\r\n--a--\r\n";

// R34, R43
#[tokio::test]
async fn the_same_bytes_that_are_read_otherwise_are_another_request() {
    let json = "application/json";
    let cases = [
        ("multipart/form-data; boundary=a", "multipart/form-data; boundary=ab", None),
        ("multipart/mixed; boundary=a", "multipart/mixed; boundary=ab", None),
        ("text/plain; charset=utf-8", "text/plain; charset=utf-16", None),
        ("application/json; charset=utf-8", "application/json; charset=iso-8859-1", None),
        (json, json, Some("x-http-method-override")),
        (json, json, Some("x-http-method")),
        (json, json, Some("x-method-override")),
    ];
    for mode in [FingerprintMode::Auto, FingerprintMode::Raw] {
        for (one, other, overriding) in cases {
            let rules = FingerprintRules { mode, ..FingerprintRules::default() };
            let guarded = Guarded::counting(Policy::default().with_fingerprint(rules));
            let first = guarded.send(read_as(one, None)).await;
            let again = guarded.send(read_as(other, overriding)).await;
            assert_eq!(
                again.status,
                StatusCode::UNPROCESSABLE_ENTITY,
                "{mode:?} {other} {overriding:?}"
            );
            guarded.send(read_as(one, None)).await.assert_replays(&first);
            assert_eq!(guarded.executions(), 1);
        }
    }
}

fn read_as(content_type: &str, overriding: Option<&'static str>) -> Request<Body> {
    let mut request = post(KEY, TWO_WAYS);
    request.headers_mut().insert("content-type", content_type.parse().unwrap());
    if let Some(name) = overriding {
        request.headers_mut().insert(name, "DELETE".parse().unwrap());
    }
    request
}

// R43; FPR-23
#[tokio::test]
async fn a_client_that_makes_a_new_boundary_for_each_try_is_understood() {
    let guarded = Guarded::counting(Policy::default());
    let tried = |boundary: &str| {
        let body = TWO_WAYS.replace("--a", &format!("--{boundary}"));
        let body = body.replace(&format!("--{boundary}b"), "--inside");
        let mut request = post(KEY, body);
        let content_type = format!("multipart/form-data; boundary={boundary}");
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        request
    };
    let first = guarded.send(tried("x1")).await;
    guarded.send(tried("y2")).await.assert_replays(&first);
}

/// It would take minutes to compare each parameter with all before it.
// threat K9
#[tokio::test]
async fn a_part_with_very_many_parameters_is_compared_as_bytes_and_has_no_key() {
    let many =
        |value: &str| -> String { (0..131_072).map(|n| format!("; p{n}={value}")).collect() };
    let form = |value: &str| {
        let head = format!("Content-Disposition: form-data; name=\"k\"{}", many(value));
        let mut request = post(KEY, format!("--b\r\n{head}\r\n\r\n1\r\n--b--\r\n"));
        let content_type = "multipart/form-data; boundary=b".parse().unwrap();
        request.headers_mut().insert("content-type", content_type);
        request
    };
    let policy = Policy::default().with_request_bytes_max(4 << 20);
    let guarded = Guarded::counting(policy.clone());
    let first = guarded.send(form("1")).await;
    guarded.send(form("1")).await.assert_replays(&first);
    assert_eq!(guarded.send(form("2")).await.problem(), "idempotency_key_reused");
    let source: KeySource = "form:k".parse().unwrap();
    let in_the_form = Guarded::counting(policy.with_key_from([source]));
    assert_eq!(in_the_form.send(form("1")).await.problem(), "idempotency_key_invalid");
    assert_eq!((guarded.executions(), in_the_form.executions()), (1, 0));
}

// threat K9
#[tokio::test]
async fn a_content_type_with_very_many_parameters_is_compared_as_bytes() {
    let guarded = Guarded::counting(Policy::default());
    let typed = |body: &'static str| {
        let params: String = (0..65).map(|n| format!("; p{n}=1")).collect();
        let mut request = post(KEY, body);
        let content_type = format!("application/json{params}").parse().unwrap();
        request.headers_mut().insert("content-type", content_type);
        request
    };
    let first = guarded.send(typed(r#"{"a":1,"b":2}"#)).await;
    guarded.send(typed(r#"{"a":1,"b":2}"#)).await.assert_replays(&first);
    let same_meaning = guarded.send(typed(r#"{"b":2,"a":1}"#)).await;
    assert_eq!(same_meaning.problem(), "idempotency_key_reused");
}

// R39; FPR-14, FPR-19: bodies that are no good JSON are taken as they are.
#[tokio::test]
async fn a_body_that_is_no_good_json_is_compared_by_its_bytes_and_never_refused() {
    let guarded = Guarded::counting(Policy::default());
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let bodies: [&'static [u8]; 6] = [
        b"{\"a\":",
        b"{\"a\":1,\"a\":2}",
        b"{\"a\":\"\\ud800\"}",
        b"\xff\xfe",
        b"",
        b"{\"a\":1e400}",
    ];
    let bodies = bodies.into_iter().map(Bytes::from_static).chain([Bytes::from(deep)]);
    for (n, body) in bodies.enumerate() {
        let key = format!("{KEY}-{n}");
        let first = guarded.send(post(&key, body.clone())).await;
        guarded.send(post(&key, body)).await.assert_replays(&first);
        let other = guarded.send(post(&key, "{\"a\":2}")).await;
        assert_eq!(other.problem(), "idempotency_key_reused");
        assert_eq!(guarded.executions(), n + 1);
    }
}

// R45; FPR-31; threat G5
#[tokio::test]
async fn a_request_that_is_too_large_is_413_and_leaves_the_key_free() {
    let guarded = Guarded::counting(Policy::default().with_request_bytes_max(1024));
    let chunks = || {
        futures_util::stream::iter(
            (0..64).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 64]))),
        )
    };
    for body in [Body::from(vec![b'x'; 1025]), Body::from_stream(chunks())] {
        let answer = guarded.send(post(KEY, body)).await;
        assert_eq!(
            (answer.status, answer.problem().as_str()),
            (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large")
        );
    }
    let declared = {
        let mut request = post(KEY, Body::empty());
        request.headers_mut().insert("content-length", "1025".parse().unwrap());
        request
    };
    assert_eq!(guarded.send(declared).await.problem(), "request_too_large");
    assert!(!guarded.post(KEY, BODY).await.is_replay());
    assert_eq!(guarded.executions(), 1);
}

// FPR-35; threat G6
#[tokio::test]
async fn a_half_sent_body_never_claims() {
    let guarded = Guarded::counting(Policy::default());
    let broken = futures_util::stream::iter([
        Ok(Bytes::from_static(b"{\"amo")),
        Err(std::io::Error::other("gone")),
    ]);
    let answer = guarded.send(post(KEY, Body::from_stream(broken))).await;
    assert_eq!(answer.problem(), "request_incomplete");
    assert!(!guarded.post(KEY, BODY).await.is_replay());
    assert_eq!(guarded.executions(), 1);
}

// R71, R72, R74, R81; REP-02, REP-03, REP-10, REP-31, REP-33, REP-34
#[tokio::test]
async fn a_replay_has_the_headers_of_the_answer_and_not_those_of_the_moment() {
    let guarded = Guarded::new(Policy::default(), |_| async {
        Response::builder()
            .status(StatusCode::ACCEPTED)
            .header("location", "/op/1")
            .header("content-type", "application/octet-stream")
            .header("vary", "accept")
            .header("vary", "origin")
            .header("set-cookie", "s=1")
            .header("www-authenticate", "Basic")
            .header("date", "Mon, 01 Jan 2024 00:00:00 GMT")
            .header("x-request-id", "1")
            .header("x-ratelimit-remaining", "7")
            .header("server-timing", "a")
            .header("retry-after", "3")
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("idempotent-replayed", "true")
            .body(Body::from(&b"\x00\xff{\"a\":1.0,\"a\":2}"[..]))
            .unwrap()
    });
    let first = guarded.post(KEY, BODY).await;
    assert_eq!(first.headers["set-cookie"], "s=1");
    let replay = guarded.post(KEY, BODY).await;
    replay.assert_replays(&first);
    let kept: Vec<_> = replay.headers.get_all("vary").iter().collect();
    assert_eq!(kept, ["accept", "origin"]);
    assert_eq!(replay.headers.get_all("idempotent-replayed").iter().count(), 1);
    for gone in [
        "set-cookie",
        "www-authenticate",
        "date",
        "x-request-id",
        "x-ratelimit-remaining",
        "server-timing",
        "retry-after",
        "x-hop",
        "connection",
    ] {
        assert!(!replay.headers.contains_key(gone), "{gone}");
    }
}

// R75, R76; REP-05 to REP-09
#[tokio::test]
async fn answers_without_a_body_and_redirects_are_replayed_as_they_are() {
    for status in [204, 205, 303, 304] {
        let guarded = Guarded::new(Policy::default(), move |_| async move {
            Response::builder().status(status).header("location", "/r").body(Body::empty()).unwrap()
        });
        let first = guarded.post(KEY, BODY).await;
        guarded.post(KEY, BODY).await.assert_replays(&first);
        assert_eq!((first.status.as_u16(), guarded.executions()), (status, 1));
    }
}

// R69, R83 to R85, R92; FAIL-01 to FAIL-09; threat F9
#[tokio::test]
async fn every_status_is_stored_released_or_unknown_as_the_policy_says() {
    for status in 200..600u16 {
        for retry_after in [false, true] {
            let guarded = Guarded::new(Policy::default(), move |_| async move {
                let mut response = Response::builder().status(status);
                if retry_after {
                    response = response.header("retry-after", "1");
                }
                response.body(Body::empty()).unwrap()
            });
            let first = guarded.post(KEY, BODY).await;
            assert_eq!(first.status.as_u16(), status, "the first caller gets the answer as it is");
            let second = guarded.post(KEY, BODY).await;
            match (status, retry_after) {
                (401 | 403 | 407 | 408 | 421 | 425 | 429, _) | (409 | 503, true) => {
                    assert!(!second.is_replay(), "{status}");
                    assert_eq!((second.status.as_u16(), guarded.executions()), (status, 2));
                }
                (502 | 504, _) | (503, false) => {
                    assert_eq!(second.problem(), "idempotency_outcome_unknown", "{status}");
                    assert_eq!((second.status, guarded.executions()), (StatusCode::CONFLICT, 1));
                }
                _ => {
                    assert!(second.is_replay(), "{status}");
                    assert_eq!(guarded.executions(), 1);
                }
            }
        }
    }
}

/// A timeout inside of the service, which a deadline sets off, cuts off work that has begun.
#[tokio::test]
async fn a_408_to_a_request_with_a_deadline_does_not_say_that_nothing_was_executed() {
    let guarded = Guarded::new(Policy::default(), |_| async { StatusCode::REQUEST_TIMEOUT });
    let with_deadline = || {
        let mut request = post(KEY, BODY);
        request.headers_mut().insert("request-timeout", "30".parse().unwrap());
        request
    };
    assert_eq!(guarded.send(with_deadline()).await.status, StatusCode::REQUEST_TIMEOUT);
    let again = guarded.send(with_deadline()).await;
    assert_eq!((again.status, guarded.executions()), (StatusCode::CONFLICT, 1));
    assert_eq!(again.problem(), "idempotency_outcome_unknown");
}

/// The work goes on, so that a retry is told its end.
#[tokio::test]
async fn a_caller_whose_deadline_passes_is_told_to_ask_again_whatever_the_recovery() {
    for recovery in [Recovery::Hold, Recovery::Fail, Recovery::Release] {
        let (guarded, open) = gated(Policy::default().with_recovery(recovery));
        let mut request = post(KEY, BODY);
        request.headers_mut().insert("request-timeout", "0.05".parse().unwrap());
        let overdue = guarded.send(request).await;
        assert_eq!((overdue.status.as_u16(), overdue.retry().as_str()), (504, "same-key"));
        let detail = overdue.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("is told the outcome"), "{recovery:?}: {detail}");
        open.send_replace(true);
    }
}

/// Only a problem of ours is made a gRPC status: what the service said is replayed as it was.
#[tokio::test]
async fn a_problem_document_of_the_service_is_replayed_as_it_was_to_grpc_too() {
    let problem = r#"{"code":"card_declined","detail":"no"}"#;
    let guarded = Guarded::new(Policy::default(), move |_| async move {
        let response = Response::builder().status(402);
        response
            .header("content-type", "application/problem+json")
            .body(Body::from(problem))
            .unwrap()
    });
    let call = || {
        let mut request = post(KEY, BODY);
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        request
    };
    let first = guarded.send(call()).await;
    assert_eq!((first.status.as_u16(), &first.body[..]), (402, problem.as_bytes()));
    guarded.send(call()).await.assert_replays(&first);
}

#[tokio::test]
async fn a_failure_that_was_stored_is_a_grpc_status_when_it_is_replayed() {
    let guarded = Guarded::new(Policy::default().with_recovery(Recovery::Fail), |_| async {
        if true {
            panic!("the handler panics");
        }
    });
    for _ in 0..2 {
        let mut call = post(KEY, BODY);
        call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        let told = guarded.send(call).await;
        assert_eq!(
            (told.status.as_u16(), &told.headers["grpc-status"]),
            (200, &"2".parse().unwrap())
        );
    }
    assert_eq!(guarded.executions(), 1);
}

/// Without a message, or the call may have been executed before the status was sent.
#[tokio::test]
async fn a_grpc_call_that_has_sent_a_message_was_executed_whatever_its_status_is() {
    for (message, is_free) in [("", true), ("a message", false)] {
        let guarded = Guarded::new(Policy::default(), move |_| async move {
            let response = Response::builder().header("content-type", "application/grpc");
            response.header("grpc-status", "16").body(Body::from(message)).unwrap()
        });
        guarded.post(KEY, BODY).await;
        let again = guarded.post(KEY, BODY).await;
        assert_eq!(guarded.executions(), 1 + usize::from(is_free));
        assert_eq!(again.status.as_u16(), if is_free { 200 } else { 409 });
    }
}

/// A hop that lost its backend may end the stream of a gRPC answer before its trailers.
#[tokio::test]
async fn a_grpc_answer_without_its_status_is_not_whole() {
    for (media_type, in_head, is_whole) in [
        ("application/grpc", false, false),
        ("application/grpc+proto", false, false),
        ("application/grpc", true, true),
        ("application/grpc-web", false, true),
    ] {
        let guarded = Guarded::new(Policy::default(), move |_| async move {
            let mut response = Response::builder().header("content-type", media_type);
            if in_head {
                response = response.header("grpc-status", "0");
            }
            response.body(Body::from("half of a message")).unwrap()
        });
        let first = guarded.post(KEY, BODY).await;
        let again = guarded.post(KEY, BODY).await;
        assert_eq!((again.is_replay(), guarded.executions()), (is_whole, 1), "{media_type}");
        assert_eq!(first.status.as_u16(), if is_whole { 200 } else { 502 });
    }
}

/// A webhook is delivered again until it succeeds: what failed must be able to.
#[tokio::test]
async fn a_webhook_that_failed_runs_again_when_it_is_delivered_again() {
    for status in 200..600u16 {
        let guarded = Guarded::new(Policy::webhook(), move |_| async move {
            Response::builder().status(status).body(Body::empty()).unwrap()
        });
        assert_eq!(guarded.post(KEY, BODY).await.status.as_u16(), status);
        let again = guarded.post(KEY, BODY).await;
        let is_free = matches!(status, 408 | 429 | 500..600);
        assert_eq!(again.status.as_u16(), status);
        assert_eq!((again.is_replay(), guarded.executions()), (!is_free, 1 + usize::from(is_free)));
    }
}

#[tokio::test]
async fn a_webhook_whose_outcome_is_unknown_runs_again_when_it_is_delivered_again() {
    let policy = Policy::webhook().with_upstream_timeout(Duration::from_millis(50));
    let guarded = Guarded::new(policy, |n| async move {
        match n {
            1 => panic!("the handler panics"),
            2 => std::future::pending().await,
            _ => created(n).await,
        }
    });
    assert_eq!(guarded.post(KEY, BODY).await.status, StatusCode::BAD_GATEWAY);
    assert_eq!(guarded.post(KEY, BODY).await.status, StatusCode::GATEWAY_TIMEOUT);
    let first = guarded.post(KEY, BODY).await;
    guarded.post(KEY, BODY).await.assert_replays(&first);
    assert_eq!(guarded.executions(), 3);
}

// R91; FAIL-23
#[tokio::test]
async fn the_service_may_overrule_what_its_status_says() {
    for (word, replays, executions) in
        [("store", true, 1), ("release", false, 2), ("unknown", false, 1)]
    {
        let guarded = Guarded::new(Policy::default(), move |_| async move {
            Response::builder()
                .status(429)
                .header("idempotency-store", word)
                .body(Body::empty())
                .unwrap()
        });
        let first = guarded.post(KEY, BODY).await;
        assert!(!first.headers.contains_key("idempotency-store"));
        let second = guarded.post(KEY, BODY).await;
        assert_eq!((second.is_replay(), guarded.executions()), (replays, executions), "{word}");
    }
}

// R86; FAIL-10
#[tokio::test]
async fn an_answer_that_proves_that_nothing_was_sent_gives_the_key_back() {
    let guarded = Guarded::new(Policy::default(), |n| async move {
        let mut response = created(n).await;
        if n == 1 {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response.extensions_mut().insert(NotSent);
        }
        response
    });
    assert_eq!(guarded.post(KEY, BODY).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(guarded.post(KEY, BODY).await.status, StatusCode::CREATED);
    assert!(guarded.post(KEY, BODY).await.is_replay());
    assert_eq!(guarded.executions(), 2);
}

// R87, R89; threat A11
#[tokio::test]
async fn a_handler_that_panics_leaves_an_unknown_outcome() {
    let guarded = Guarded::new(Policy::default(), |n| async move {
        assert_ne!(n, 1, "the handler panics");
        StatusCode::CREATED
    });
    let first = guarded.post(KEY, BODY).await;
    assert_eq!(
        (first.status, first.problem().as_str()),
        (StatusCode::BAD_GATEWAY, "idempotency_outcome_unknown")
    );
    let retry = guarded.post(KEY, BODY).await;
    assert_eq!(
        (retry.status, retry.problem().as_str()),
        (StatusCode::CONFLICT, "idempotency_outcome_unknown")
    );
    assert!(retry.headers.contains_key("retry-after"));
    assert_eq!((retry.retry().as_str(), guarded.executions()), ("same-key", 1));
}

// R88; FAIL-31
#[tokio::test]
async fn where_failures_are_final_the_problem_is_what_a_retry_gets() {
    let guarded = Guarded::new(Policy::default().with_recovery(Recovery::Fail), |_| async {
        panic!("the handler panics");
        #[expect(unreachable_code, reason = "it gives the handler its type")]
        StatusCode::OK
    });
    let first = guarded.post(KEY, BODY).await;
    assert_eq!(
        (first.problem().as_str(), first.retry().as_str()),
        ("idempotency_outcome_unknown", "never")
    );
    guarded.post(KEY, BODY).await.assert_replays(&first);
    assert_eq!(guarded.executions(), 1);
}

// R87; FAIL-15; threat F1
#[tokio::test]
async fn a_handler_that_never_answers_ends_as_504_and_unknown() {
    let policy = Policy::default().with_upstream_timeout(Duration::from_millis(50));
    let guarded = Guarded::new(policy, |_| std::future::pending::<StatusCode>());
    let first = guarded.post(KEY, BODY).await;
    assert_eq!(first.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(first.problem(), "idempotency_outcome_unknown");
    assert_eq!(guarded.post(KEY, BODY).await.problem(), "idempotency_outcome_unknown");
    assert_eq!(guarded.executions(), 1);
}

// R87; FAIL-14; threat F4
#[tokio::test]
async fn an_answer_that_breaks_off_is_unknown_and_never_stored_short() {
    let guarded = Guarded::new(Policy::default(), |_| async {
        let broken = [Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("reset"))];
        Body::from_stream(futures_util::stream::iter(broken)).into_response()
    });
    assert_eq!(guarded.post(KEY, BODY).await.status, StatusCode::BAD_GATEWAY);
    assert_eq!(guarded.post(KEY, BODY).await.problem(), "idempotency_outcome_unknown");
    assert_eq!(guarded.executions(), 1);
}

// R87; threat F4
#[tokio::test]
async fn an_answer_that_only_its_connection_ends_is_kept_if_it_is_whole_json() {
    let cases = [
        ("application/json", r#"{"id":1}"#, true),
        ("application/problem+json", " [1, {\"a\": \"}\"}]\n", true),
        ("application/json", r#"{"id":1"#, false),
        ("application/json", r#"{"id":"}"#, false),
        ("application/json", r#"{"id":1} x"#, false),
        ("application/json", "1", false),
        ("application/json", "", false),
        ("text/plain", r#"{"id":1}"#, false),
    ];
    for recovery in [Recovery::Hold, Recovery::Fail] {
        // With `fail` the answer of a proxy is what is kept.
        let status = if recovery == Recovery::Fail { 502 } else { 201 };
        for (media_type, body, is_kept) in cases {
            let policy = Policy::default().with_recovery(recovery);
            let guarded = Guarded::new(policy, move |_| async move {
                let response = Response::builder().status(status).extension(UntilClose);
                response.header("content-type", media_type).body(Body::from(body)).unwrap()
            });
            let first = guarded.post(KEY, BODY).await;
            assert_eq!(first.body, body);
            let retry = guarded.post(KEY, BODY).await;
            match is_kept {
                true => retry.assert_replays(&first),
                false => assert_eq!(retry.status, StatusCode::GONE, "{media_type} {body}"),
            }
            assert_eq!(guarded.executions(), 1);
        }
    }
}

// R79; threat F6
#[tokio::test]
async fn a_large_answer_is_streamed_whole_and_a_retry_gets_410() {
    let large = Bytes::from(vec![b'x'; 10_000_000]);
    let body = large.clone();
    let guarded = Guarded::new(Policy::default(), move |_| {
        let chunks: Vec<_> = body
            .chunks(65_536)
            .map(|chunk| Ok::<_, std::io::Error>(body.slice_ref(chunk)))
            .collect();
        async { Body::from_stream(futures_util::stream::iter(chunks)).into_response() }
    });
    let first = guarded.post(KEY, BODY).await;
    assert_eq!((first.status, first.body.len()), (StatusCode::OK, large.len()));
    assert!(first.body == large);
    let retry = guarded.post(KEY, BODY).await;
    assert_eq!(
        (retry.status, retry.problem().as_str()),
        (StatusCode::GONE, "idempotency_response_unavailable")
    );
    assert_eq!(
        (retry.json()["original_status"].as_u64(), retry.retry().as_str()),
        (Some(200), "never")
    );
    assert_eq!(guarded.executions(), 1);
}

// R78; REP-25, REP-26; threat F7
#[tokio::test]
async fn an_event_stream_is_not_held_back_and_is_not_kept() {
    let (more, _) = watch::channel(false);
    let gate = more.clone();
    let guarded = Guarded::new(Policy::default(), move |_| {
        let mut opened = gate.subscribe();
        let second = async move {
            opened.wait_for(|open| *open).await.unwrap();
            Ok(Bytes::from_static(b"data: 2\n\n"))
        };
        let events = futures_util::stream::once(async {
            Ok::<_, std::io::Error>(Bytes::from_static(b"data: 1\n\n"))
        });
        let events = events.chain(futures_util::stream::once(second));
        async {
            ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
        }
    });
    use tower::ServiceExt;
    let response = guarded.app.clone().oneshot(post(KEY, BODY)).await.unwrap();
    let mut events = response.into_body().into_data_stream();
    assert_eq!(
        events.next().await.unwrap().unwrap(),
        "data: 1\n\n",
        "the first comes before the second is made"
    );
    assert_eq!(guarded.post(KEY, BODY).await.status, StatusCode::GONE);
    more.send_replace(true);
    assert_eq!(events.next().await.unwrap().unwrap(), "data: 2\n\n");
    assert!(events.next().await.is_none());
    assert_eq!(guarded.executions(), 1);
}

// R90; FAIL-21, FAIL-22
#[tokio::test]
async fn a_client_that_leaves_changes_nothing() {
    let policy = Policy::default().with_in_flight(InFlight::Wait(Duration::from_secs(20)));
    let (guarded, open) = gated(policy);
    let leaver = begin(&guarded, post(KEY, BODY)).await;
    leaver.abort();
    let again = guarded.clone();
    let again = tokio::spawn(async move { again.post(KEY, BODY).await });
    until(|| guarded.once.waiting() == 1).await;
    open.send_replace(true);
    let again = again.await.unwrap();
    assert!(again.is_replay());
    assert_eq!((again.json()["n"].as_u64(), guarded.executions()), (Some(1), 1));
}

// R48, R55; CON-09, CON-10
#[tokio::test]
async fn of_many_at_once_one_is_executed() {
    for _ in 0..tiered(20) {
        let (guarded, open) = gated(Policy::default());
        let senders: Vec<_> = (0..100)
            .map(|n| {
                let guarded = guarded.clone();
                let body = if n % 2 == 0 { BODY } else { OTHER_BODY };
                tokio::spawn(async move { guarded.post(KEY, body).await })
            })
            .collect();
        until(|| guarded.once.counts().in_progress + guarded.once.counts().reused == 99).await;
        open.send_replace(true);
        let mut statuses = Vec::new();
        for sender in senders {
            statuses.push(sender.await.unwrap().status.as_u16());
        }
        let count = |status| statuses.iter().filter(|s| **s == status).count();
        assert_eq!((count(201), count(409), count(422), guarded.executions()), (1, 49, 50, 1));
    }
}

// R105, R108, R110; EXP-01 to EXP-07
#[tokio::test]
async fn an_answer_is_kept_for_its_ttl_from_completion_and_then_the_key_is_new() {
    let policy = Policy::default().with_ttl(Duration::from_millis(300));
    let guarded = Guarded::counting(policy);
    let first = guarded.post(KEY, BODY).await;
    guarded.post(KEY, BODY).await.assert_replays(&first);
    let expired = async {
        loop {
            let answer = guarded.post(KEY, OTHER_BODY).await;
            if answer.status == StatusCode::CREATED {
                return answer;
            }
            assert_eq!(answer.problem(), "idempotency_key_reused");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let anew = tokio::time::timeout(Duration::from_secs(10), expired).await.unwrap();
    assert!(!anew.is_replay());
    assert_eq!(guarded.executions(), 2);
}

// R163, R74: what the inner service sees.
#[tokio::test]
async fn the_inner_service_sees_the_attempt_and_no_wish_for_a_coding() {
    let once = onlyonce::Once::new(onlyonce::store::memory::MemoryStore::new());
    let seen = |request: Request<Body>| async move {
        let header =
            |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        format!(
            "{:?} {:?} {:?}",
            header("idempotency-attempt"),
            header("accept-encoding"),
            header("idempotency-key")
        )
    };
    let app =
        axum::Router::new().fallback(seen).layer(once.layer(support::caller, Policy::default()));
    let mut request = post(KEY, BODY);
    request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    request.headers_mut().insert("idempotency-attempt", "99".parse().unwrap());
    use tower::ServiceExt;
    let answer = Answer::read(app.oneshot(request).await.unwrap()).await;
    assert_eq!(answer.body, format!("Some(\"1\") None Some({KEY:?})"));
}

// threat B14
#[tokio::test]
async fn a_layer_takes_every_policy_and_the_safe_reading_of_its_values_holds() {
    let nonsense = Policy::default().with_ttl(LONG).with_hold_max(Duration::ZERO).with_key_from([]);
    let guarded = Guarded::counting(nonsense);
    let first = guarded.post(KEY, BODY).await;
    guarded.post(KEY, BODY).await.assert_replays(&first);
}

// A body counts for as long as a handler works on it.
#[tokio::test]
async fn the_room_of_a_body_is_taken_until_its_work_is_done() {
    let limits = onlyonce::Limits::default().with_bodies_bytes_max(50);
    let store = onlyonce::store::memory::MemoryStore::new();
    let once = onlyonce::Once::builder(store).with_limits(limits).build();
    let (open, opened) = watch::channel(false);
    let guarded = Guarded::on(once, Policy::default(), move |n| {
        let mut opened = opened.clone();
        async move {
            opened.wait_for(|open| *open).await.unwrap();
            created(n).await
        }
    });
    let first = begin(&guarded, post(KEY, BODY)).await;
    let refused = guarded.post("another-key", BODY).await;
    assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (503, "overloaded"));
    open.send_replace(true);
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
    assert_eq!(guarded.post("another-key", BODY).await.status, StatusCode::CREATED);
}

/// Twice as long as the rest of an answer is read for nobody, and more.
const LONG: Duration = Duration::from_secs(600);

/// A service behind the layer that drips a large answer for ever would keep its place for as long.
// R79
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_large_answer_is_not_read_for_ever_for_a_client_that_left() {
    let (watched, ended) = watch::channel(());
    let watched = Arc::new(std::sync::Mutex::new(Some(watched)));
    let guarded = Guarded::new(Policy::default().with_response_bytes_max(10), move |_| {
        let watched = watched.lock().unwrap().take();
        let drops = futures_util::stream::unfold(watched, |watched| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"another drop")), watched))
        });
        async { Body::from_stream(drops).into_response() }
    });
    use tower::ServiceExt;
    let response = guarded.app.clone().oneshot(post(KEY, BODY)).await.unwrap();
    let mut body = response.into_body().into_data_stream();
    for _ in 0..100 {
        assert_eq!(
            body.next().await.unwrap().unwrap(),
            "another drop",
            "for as long as it is read"
        );
    }
    drop(body);
    tokio::time::sleep(LONG).await;
    assert!(ended.has_changed().is_err(), "the answer is dropped");
    assert_eq!(guarded.post(KEY, BODY).await.status, StatusCode::GONE);
}

/// A request without a key is forwarded with a body that was read whole: it counts until it was sent on.
#[tokio::test]
async fn the_room_of_an_unkeyed_body_is_taken_until_it_is_sent_on() {
    let limits = onlyonce::Limits::default().with_bodies_bytes_max(50);
    let store = onlyonce::store::memory::MemoryStore::new();
    let once = onlyonce::Once::builder(store).with_limits(limits).build();
    let (open, opened) = watch::channel(false);
    let (arrived, mut arrivals) = watch::channel(0);
    let sends_on = move |request: Request<Body>| {
        arrived.send_modify(|count| *count += 1);
        let mut opened = opened.clone();
        async move {
            opened.wait_for(|open| *open).await.unwrap();
            axum::body::to_bytes(request.into_body(), 1000).await.unwrap()
        }
    };
    let in_the_body: KeySource = "json:/key".parse().unwrap();
    let layer = once.layer(support::caller, Policy::default().with_key_from([in_the_body]));
    let app = axum::Router::new().fallback(sends_on).layer(layer);
    use tower::ServiceExt;
    let first = tokio::spawn(app.clone().oneshot(post(KEY, BODY)));
    arrivals.wait_for(|count| *count == 1).await.unwrap();
    let second = app.clone().oneshot(post(KEY, BODY));
    let second = tokio::time::timeout(Duration::from_secs(5), second).await;
    let second = Answer::read(second.expect("there is no room for it").unwrap()).await;
    assert_eq!(second.problem(), "overloaded");
    open.send_replace(true);
    assert_eq!(Answer::read(first.await.unwrap().unwrap()).await.body, BODY);
    assert_eq!(app.oneshot(post(KEY, BODY)).await.unwrap().status(), StatusCode::OK);
}
