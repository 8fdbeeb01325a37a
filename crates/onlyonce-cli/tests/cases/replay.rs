//! 5. Replay fidelity.

mod coding;
mod grpc;
mod grpc_python;
mod stream;

use std::time::{Duration, SystemTime};

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, I, S, Set};
use crate::reply::Reply;
use crate::subject::{Kind, Subject};
use crate::{B1, K1, on_both};

on_both! {
    rep_01, rep_02, rep_03, rep_05, rep_06, rep_07, rep_09, rep_10, rep_11, rep_13, rep_17, rep_18,
    rep_19, rep_21, rep_22, rep_31, rep_33, rep_34, rep_35,
}

/// The answer that `reply` gives to `/t`, and its replay.
async fn twice(t: &Subject, reply: Reply) -> (Answer, Answer) {
    let status = reply.status;
    t.u.plan("/t", [reply, Reply::status(599)]);
    let first = t.post(K1, B1).await.fresh(status);
    let again = t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
    (first, again)
}

async fn rep_01(on: Kind) {
    for profile in [D, I, S] {
        let t = on.start(profile).await;
        let ask = Ask::post(B1).key(format!("\"{K1}\""));
        let first = t.send(&ask).await.fresh(201);
        assert_eq!((first.all("location"), first.all("etag")), (vec!["/t/1"], vec!["\"1\""]));
        assert_eq!(first.json()["n"], 1);
        for _ in 0..3 {
            t.send(&ask).await.replays(&first);
        }
        assert_eq!(t.n(), 1);
    }
}

async fn rep_02(on: Kind) {
    let every_byte: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    for body in [b"\0\xff\r\n\0".to_vec(), every_byte, Vec::new()] {
        let t = on.start(D).await;
        let reply = Reply::status(200).header("Content-Type", "application/octet-stream");
        let (first, again) = twice(&t, reply.body(body.clone())).await;
        assert_eq!(first.body, body);
        assert_eq!(again.all("content-type"), ["application/octet-stream"]);
    }
}

async fn rep_03(on: Kind) {
    let body = "{ \"a\" : 1.0,\n\t\"a\":1e2 ,\"b\":\"\\u0041\" }\n\n";
    let t = on.start(D).await;
    let reply = Reply::created().header("X-Case", "Kept As Sent");
    let (first, again) = twice(&t, reply.body(body)).await;
    assert_eq!(first.body, body);
    assert_eq!(again.all("x-case"), ["Kept As Sent"]);
}

// threat F13
async fn rep_05(on: Kind) {
    let t = on.start(D).await;
    let (first, _) = twice(&t, Reply::status(304).header("ETag", "\"v1\"")).await;
    assert!(first.body.is_empty());
}

// threat F13
async fn rep_06(on: Kind) {
    for status in [204, 205] {
        let t = on.start(D).await;
        let (first, _) = twice(&t, Reply::status(status).body("")).await;
        assert!(first.body.is_empty());
    }
}

// threat F11
async fn rep_07(on: Kind) {
    for status in [301, 303, 307, 308] {
        let t = on.start(D).await;
        let (_, again) = twice(&t, Reply::status(status).header("Location", "/r")).await;
        assert_eq!(again.all("location"), ["/r"]);
        assert_eq!(t.u.total(), 1);
    }
}

async fn rep_09(on: Kind) {
    let t = on.start(D).await;
    let (_, again) = twice(&t, Reply::status(202).header("Location", "/op/1")).await;
    assert_eq!(again.all("location"), ["/op/1"]);
    for n in 1..=2 {
        t.send(&Ask::bare("GET", "/op/1").key(K1)).await.fresh(200);
        assert_eq!(t.u.count("/op/1"), n);
    }
}

// threat F12
async fn rep_10(on: Kind) {
    let t = on.start(D).await;
    let reply = Reply::created().header("Set-Cookie", "s=1").header("Set-Cookie", "t=2");
    let (first, again) = twice(&t, reply.header("WWW-Authenticate", "Basic")).await;
    assert_eq!(first.all("set-cookie"), ["s=1", "t=2"]);
    for name in ["set-cookie", "www-authenticate"] {
        assert!(again.all(name).is_empty(), "{name}");
    }
}

async fn rep_11(on: Kind) {
    let t = on.start(D).await;
    let long_ago = "Tue, 15 Nov 1994 08:12:31 GMT";
    let (first, again) = twice(&t, Reply::created().header("Date", long_ago)).await;
    assert_eq!(first.all("date").len(), 1);
    let [date] = again.all("date")[..] else {
        panic!("one Date in {again:?}");
    };
    let date = httpdate::parse_http_date(date).unwrap();
    let age = now().duration_since(date).unwrap_or_default();
    assert!(age < Duration::from_secs(300), "{age:?}");
}

#[expect(clippy::disallowed_methods, reason = "the other process reads the same clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

async fn rep_13(on: Kind) {
    // The client refuses an answer with two framings, or with none that ends.
    let t = on.start(D).await;
    let (first, _) = twice(&t, Reply::created().body("0123456789abcdef").chunked()).await;
    assert_eq!(first.body, "0123456789abcdef");
}

// R70
async fn rep_17(on: Kind) {
    let t = on.start(D).await;
    t.u.plan("/t", [Reply::status(200).header("ETag", "\"v2\""), Reply::status(412)]);
    let conditional = |etag| Ask::post(B1).key(K1).header("If-Match", etag);
    let first = t.send(&conditional("\"v1\"")).await.fresh(200);
    t.send(&conditional("\"v1\"")).await.replays(&first);
    assert_eq!(t.n(), 1);
    assert_eq!(t.u.seen()[0].header("if-match"), Some("\"v1\""));
}

async fn rep_18(on: Kind) {
    let t = on.start(D).await;
    let first = t.post(K1, B1).await.fresh(201);
    let ranged = Ask::post(B1).key(K1).header("Range", "bytes=0-1");
    let again = t.send(&ranged).await.replays(&first);
    assert!(again.all("content-range").is_empty());
    // Nor does a condition that the stored answer would fail change it.
    let conditional = Ask::post(B1).key(K1).header("If-None-Match", "\"1\"");
    t.send(&conditional).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// threat F5
async fn rep_19(on: Kind) {
    let t = on.start(D).await;
    let (first, again) = twice(&t, Reply::created().with_hints()).await;
    // A server may keep hints to itself; it may not make them the answer.
    assert!(first.early.iter().all(|status| *status == 103), "{first:?}");
    assert!(again.early.is_empty(), "{again:?}");
}

/// Sends the head alone, and waits for what comes.
async fn expecting(t: &Subject, ask: &Ask) -> Answer {
    let mut connection = t.connect().await;
    connection.0.write(&ask.head()).await.unwrap();
    connection.answer(ask).await.unwrap()
}

// threat F5
async fn rep_21(on: Kind) {
    let t = on.start(&[Set::Required]).await;
    let ask = Ask::post(B1).header("Expect", "100-continue");
    let missing = expecting(&t, &ask).await;
    missing.problem(400, "idempotency_key_missing");
    assert!(missing.early.is_empty(), "{missing:?}");
    for key in ["a,b".to_owned(), "k".repeat(256), String::new(), "\"".to_owned()] {
        let answer = expecting(&t, &ask.clone().key(key)).await;
        answer.problem(400, "idempotency_key_invalid");
        assert!(answer.early.is_empty(), "{answer:?}");
    }
    let large = Ask::post(vec![b' '; 1024 * 1024 + 1]).key(K1);
    let answer = expecting(&t, &large.header("Expect", "100-continue")).await;
    answer.problem(413, "request_too_large");
    assert!(answer.early.is_empty(), "{answer:?}");
    assert_eq!(t.u.total(), 0);
}

async fn rep_22(on: Kind) {
    let t = on.start(D).await;
    let first = t.post(K1, B1).await.fresh(201);
    let ask = Ask::post(B1).key(K1).header("Expect", "100-continue");
    let mut connection = t.connect().await;
    connection.0.write(&ask.head()).await.unwrap();
    let go_on = connection.0.head().await.unwrap().expect("a word before the body");
    assert!(go_on.first.starts_with("HTTP/1.1 100"), "{go_on:?}");
    connection.0.write(ask.body()).await.unwrap();
    connection.answer(&ask).await.unwrap().replays(&first);
    assert_eq!(t.n(), 1);
}

async fn rep_31(on: Kind) {
    let t = on.start(D).await;
    let of_the_moment = [
        "Retry-After",
        "RateLimit-Remaining",
        "RateLimit",
        "X-RateLimit-Remaining",
        "X-Rate-Limit-Reset",
        "X-Request-Id",
        "X-Correlation-Id",
        "Server-Timing",
        "Age",
    ];
    let reply = of_the_moment.iter().fold(Reply::created(), |reply, name| reply.header(name, "7"));
    let (first, again) = twice(&t, reply).await;
    for name in of_the_moment {
        assert_eq!(first.all(name), ["7"], "{name}");
        assert!(!again.all(name).contains(&"7"), "{name}");
    }
}

// threat F12
async fn rep_33(on: Kind) {
    // `fresh` and `replays` look for the header.
    for value in ["true", "false"] {
        let t = on.start(D).await;
        twice(&t, Reply::created().header("Idempotent-Replayed", value)).await;
    }
    let t = on.start(D).await;
    twice(
        &t,
        Reply::created().header("idempotent-replayed", "true").header("IDEMPOTENT-REPLAYED", "x"),
    )
    .await;
}

// threat F13
async fn rep_34(on: Kind) {
    let t = on.start(D).await;
    let links = ["</1>; rel=\"next\"", "</2>; rel=\"prev\""];
    let reply =
        Reply::created().header("Link", links[0]).header("Vary", "Accept").header("Link", links[1]);
    let (first, again) = twice(&t, reply.header("Vary", "Origin")).await;
    for answer in [first, again] {
        assert_eq!(answer.all("link"), links);
        assert_eq!(answer.all("vary"), ["Accept", "Origin"]);
    }
}

// threat F12
async fn rep_35(on: Kind) {
    let t = on.start(D).await;
    let reply = Reply::created()
        .header("Connection", "keep-alive, X-Hop")
        .header("Keep-Alive", "timeout=5");
    t.u.plan("/t", [reply.header("X-Hop", "1").header("X-End", "1").chunked()]);
    let first = t.post(K1, B1).await.fresh(201);
    let over_http2 = t.send_http2(&Ask::post(B1).key(K1)).await.replays(&first);
    for name in
        ["connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection", "x-hop"]
    {
        assert!(over_http2.all(name).is_empty(), "{name}");
        assert!(name == "transfer-encoding" || first.all(name).is_empty(), "{name}");
    }
    assert_eq!(over_http2.all("x-end"), ["1"]);
    assert_eq!(t.n(), 1);
}
