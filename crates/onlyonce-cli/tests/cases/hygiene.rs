//! 9. Gateway hygiene.

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::reply::Reply;
use crate::subject::Kind;
use crate::{B1, B2, K1, K2, on_both, on_gateway};

on_both! { gw_01, gw_06, gw_07, gw_10 }
on_gateway! { gw_02, gw_03, gw_05, gw_09, gw_11, who_asks_must_be_clear }

// R23
async fn gw_01(on: Kind) {
    let t = on.start(D).await;
    for key in [K1.to_owned(), format!("\"{K2}\""), r#""a \"b\" c";v=1"#.to_owned()] {
        let ask = Ask::post(B1).key(&key).header("X-Own", "kept");
        t.send(&ask.header("Idempotency-Attempt", "99").header("Accept-Encoding", "gzip"))
            .await
            .fresh(201);
        let seen = t.u.seen().pop().unwrap();
        assert_eq!(seen.header("idempotency-key"), Some(key.as_str()));
        assert_eq!(seen.header("idempotency-attempt"), Some("1"));
        assert_eq!(seen.header("accept-encoding"), None);
        assert_eq!((seen.header("x-own"), &seen.body[..]), (Some("kept"), B1.as_bytes()));
    }
}

async fn gw_02(on: Kind) {
    let t = on.start(&[Set::ForwardKey("derive"), Set::Secret]).await;
    t.u.plan("/t", [Reply::status(429)]);
    for tenant in ["TA", "TB", "TA", "TB"] {
        t.send(&Ask::post(B1).key(K1).tenant(tenant)).await.fresh(429);
    }
    t.send(&Ask::post(B1).key(K2).tenant("TA")).await.fresh(429);
    let seen = t.u.seen();
    let derived: Vec<_> =
        seen.iter().map(|seen| seen.header("idempotency-key").expect("a key")).collect();
    assert_eq!((derived[0], derived[1]), (derived[2], derived[3]), "stable");
    assert!(derived[0] != derived[1] && derived[0] != derived[4] && derived[1] != derived[4]);
    assert!(
        derived.iter().all(|key| !key.contains(K1) && (16..=255).contains(&key.len())),
        "{derived:?}"
    );
}

async fn gw_03(on: Kind) {
    let t = on.start(&[Set::ForwardKey("strip")]).await;
    let first = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.u.seen()[0].header("idempotency-key"), None);
    assert_eq!(t.n(), 1);
}

async fn gw_05(on: Kind) {
    let t = on.start(D).await;
    let (length, chunked) = (("Content-Length", "5"), ("Transfer-Encoding", "chunked"));
    for lines in [
        vec![length, chunked],
        vec![chunked, length],
        vec![length, ("Content-Length", "6")],
        vec![("Transfer-Encoding", "chunked, identity")],
        vec![("Content-Length", "+5")],
    ] {
        let ask = Ask::bare("POST", "/t").key(K1);
        let ask = lines.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
        let mut connection = t.connect().await;
        connection.0.write(&ask.head()).await.unwrap();
        connection.0.write(b"0\r\n\r\n").await.unwrap();
        let answer = connection.answer(&ask).await.unwrap();
        assert_eq!(answer.status, 400, "{lines:?}");
        let rest = crate::within("the end of the connection", connection.0.rest()).await;
        assert!(rest.is_ok_and(|rest| rest.is_empty()), "{lines:?}");
    }
    assert_eq!(t.u.total(), 0);
}

async fn gw_06(on: Kind) {
    let t = on.start(D).await;
    let ask = Ask::post(B1).key(K1);
    let other = Ask::post(B2).key(K2).to("/other");
    let mut connection = t.connect().await;
    let pipelined = [ask.bytes(), ask.bytes(), other.bytes()].concat();
    connection.0.write(&pipelined).await.unwrap();
    let first = connection.answer(&ask).await.unwrap().fresh(201);
    let second = connection.answer(&ask).await.unwrap();
    match second.status {
        409 => drop(second.problem(409, "idempotency_in_progress")),
        _ => drop(second.replays(&first)),
    }
    connection.answer(&other).await.unwrap().fresh(201);
    assert_eq!((t.n(), t.u.count("/other")), (1, 1));
}

async fn gw_07(on: Kind) {
    let t = on.start(D).await;
    let ask = Ask::post(B1).key(K1).header("Connection", "Upgrade").header("Upgrade", "websocket");
    let first = t.send(&ask).await.fresh(201);
    assert!(first.early.is_empty());
    t.send(&ask).await.replays(&first);
    assert_eq!(t.n(), 1);
    assert_eq!(t.u.seen()[0].header("upgrade"), None);
}

// threat F3
async fn gw_09(on: Kind) {
    let t = on.start(D).await;
    t.u.plan("/t", [Reply::reset()]);
    let answer = t.send(&Ask::post(B1)).await;
    answer.problem(502, "upstream_failed");
    assert_eq!(t.n(), 1);
    // Nor on a connection that has been used, where a client might think it was only idle.
    for n in 2..=4 {
        t.send(&Ask::post(B1).to("/warm")).await.fresh(201);
        t.send(&Ask::post(B1)).await.problem(502, "upstream_failed");
        assert_eq!(t.n(), n);
    }
    t.u.plan("/get", [Reply::reset()]);
    t.send(&Ask::bare("GET", "/get")).await.problem(502, "upstream_failed");
    assert_eq!(t.u.count("/get"), 1);
}

async fn gw_10(on: Kind) {
    let t = on.start(&[Set::Required]).await;
    t.post(K1, B1).await.fresh(201);
    let asks = [Ask::post(B2).key(K1), Ask::post(B1), Ask::post(B1).key("a,b")];
    for ask in asks {
        let answer = t.send(&ask.header("Accept", "application/json")).await;
        assert!((400..500).contains(&answer.status), "{answer:?}");
        let [media] = answer.all("content-type")[..] else {
            panic!("no media type in {answer:?}");
        };
        assert!(["application/problem+json", "application/json"].contains(&media), "{media}");
        let problem = answer.json();
        for member in ["type", "title", "status", "detail", "code", "retry"] {
            assert!(!problem[member].is_null(), "{member} in {problem}");
        }
    }
}

async fn gw_11(on: Kind) {
    let t = on.start(D).await;
    let injection = "'; DROP TABLE x;--";
    for key in [injection, &format!("\"{injection}\""), K1] {
        for body in [B1, B2] {
            t.send(&Ask::post(body).key(key).tenant("TA")).await;
        }
    }
    t.u.plan("/broken", [Reply::reset()]);
    t.send(&Ask::post(B1).key(K2).tenant("TA").to("/broken"))
        .await
        .problem(502, "idempotency_outcome_unknown");
    let logs = t.end_and_read_logs().await;
    for secret in [K1, K2, "DROP TABLE", "7998", "9999", "tok_TA"] {
        assert!(!logs.contains(secret), "{secret} in {logs}");
    }
}

/// DESIGN 8: guessing would run a retry twice, or show one caller the answer of another.
// R27
async fn who_asks_must_be_clear(on: Kind) {
    let t = on.start(D).await;
    let signed = "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/s3/aws4_request, SignedHeaders=host, Signature=00";
    for (name, value) in
        [("Cookie", "session=1"), ("Authorization", signed), ("Authorization", "DPoP abc")]
    {
        let answer = t.send(&Ask::post(B1).key(K1).header(name, value)).await;
        let problem = answer.problem(400, "principal_unclear");
        assert_eq!(problem["retry"], "never");
        assert_eq!(t.n(), 0);
    }
    // Without a key there is nothing to guess for.
    t.send(&Ask::post(B1).header("Cookie", "session=1")).await.fresh(201);
    let known = Ask::post(B1).key(K1).tenant("TA");
    t.send(&known.clone().header("Cookie", "session=1")).await.problem(400, "principal_unclear");
    let first = t.send(&known.clone().header("Cookie", "_ga=1")).await.fresh(201);
    t.send(&known).await.replays(&first);
}
