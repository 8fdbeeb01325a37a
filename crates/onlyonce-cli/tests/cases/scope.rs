//! 2. Presence, methods, scope.

use crate::client::Ask;
use crate::profile::{D, S, Set};
use crate::reply::{Gate, Reply};
use crate::subject::Kind;
use crate::{B1, K1, K2, on_both, until};

on_both! {
    scp_01, scp_02, scp_03, scp_05, scp_06, scp_07, scp_09, scp_10, scp_13, scp_14, scp_15, scp_17,
    scp_21, scp_22, scp_25, header_in_the_scope,
}

async fn scp_01(on: Kind) {
    let t = on.start(&[Set::Required]).await;
    for method in ["POST", "PATCH"] {
        let answer = t.send(&Ask::post(B1).method(method)).await;
        let problem = answer.problem(400, "idempotency_key_missing");
        assert_eq!(problem["title"], "Idempotency-Key is missing");
        assert_eq!(problem["retry"], "new-key");
    }
    assert_eq!(t.u.total(), 0);
}

async fn scp_02(on: Kind) {
    let t = on.start(D).await;
    for n in 1..=2 {
        t.send(&Ask::post(B1)).await.fresh(201);
        assert_eq!(t.n(), n);
    }
}

async fn scp_03(on: Kind) {
    for profile in [D, S] {
        let t = on.start(profile).await;
        for n in 1..=2 {
            t.send(&Ask::bare("GET", "/t").key(K1)).await.fresh(200);
            assert_eq!(t.n(), n);
        }
        // Nothing was stored: the key is free, and a bad one is nobody's business.
        t.post(K1, B1).await.fresh(201);
        t.send(&Ask::bare("GET", "/t").key("a,b")).await.fresh(200);
    }
}

async fn scp_05(on: Kind) {
    let t = on.start(D).await;
    for method in ["HEAD", "OPTIONS", "QUERY", "PROPFIND"] {
        let before = t.n();
        for round in 1..=2 {
            t.send(&Ask::bare(method, "/t").key(K1)).await.fresh(200);
            assert_eq!(t.n(), before + round, "{method}");
        }
    }
    let trace = t.send(&Ask::bare("TRACE", "/t").key(K1)).await;
    assert!(matches!(trace.status, 200 | 405), "{trace:?}");
    assert!(trace.all("idempotent-replayed").is_empty());
    t.post(K1, B1).await.fresh(201);
}

async fn scp_06(on: Kind) {
    let t = on.start(D).await;
    for method in ["PUT", "DELETE"] {
        let before = t.n();
        for round in 1..=2 {
            t.send(&Ask::post(B1).method(method).key(K1)).await.fresh(200);
            assert_eq!(t.n(), before + round, "{method}");
        }
    }
}

async fn scp_07(on: Kind) {
    let t = on.start(&[Set::Methods(&["POST", "PATCH", "DELETE"])]).await;
    t.u.plan("/t/1", [Reply::status(204), Reply::status(404)]);
    let delete = Ask::bare("DELETE", "/t/1").key(K1);
    let first = t.send(&delete).await.fresh(204);
    t.send(&delete).await.replays(&first);
    assert_eq!(t.u.count("/t/1"), 1);
    let put = Ask::post(B1).method("PUT").key(K1);
    t.send(&put).await.fresh(200);
    t.send(&put).await.fresh(200);
}

async fn scp_09(on: Kind) {
    let t = on.start(&[Set::Required]).await;
    t.send(&Ask::bare("GET", "/t")).await.fresh(200);
    t.send(&Ask::bare("HEAD", "/t")).await.fresh(200);
    assert_eq!(t.n(), 2);
}

async fn scp_10(on: Kind) {
    let t = on.start(D).await;
    for path in ["/a", "/b", "/a/b"] {
        t.send(&Ask::post(B1).key(K1).to(path)).await.fresh(201);
        assert_eq!(t.u.count(path), 1);
    }
    // Another method is another operation as well.
    t.send(&Ask::post(B1).key(K1).to("/a").method("PATCH")).await.fresh(200);
    assert_eq!(t.u.count("/a"), 2);
}

async fn scp_13(on: Kind) {
    let t = on.start(&[Set::Scope(&["principal", "host"])]).await;
    let first = t.post(K1, B1).await.fresh(201);
    for elsewhere in [Ask::post(B1).key(K1).method("PATCH"), Ask::post(B1).key(K1).to("/b")] {
        t.send(&elsewhere).await.problem(422, "idempotency_key_reused");
    }
    assert_eq!(t.u.total(), 1);
    t.post(K1, B1).await.replays(&first);
}

async fn scp_14(on: Kind) {
    let t = on.start(D).await;
    for path in ["/t/1", "/t/2", "/t/1/1"] {
        let ask = Ask::post(B1).key(K1).to(path);
        let first = t.send(&ask).await.fresh(201);
        t.send(&ask).await.replays(&first);
    }
    assert_eq!(t.u.total(), 3);
}

async fn scp_15(on: Kind) {
    let t = on.start(D).await;
    let ask = Ask::post(B1).key(K1);
    let callers = [
        ask.clone(),
        ask.clone().tenant("TA"),
        ask.clone().tenant("TB"),
        ask.clone().header("Authorization", "Basic dXNlcjpwYXNz"),
        ask.clone().header("X-Api-Key", "TA"),
        ask.clone().header("X-Api-Key", "TB"),
    ];
    let mut firsts = Vec::new();
    for caller in &callers {
        firsts.push(t.send(caller).await.fresh(201));
    }
    assert_eq!(t.n(), callers.len());
    for (caller, first) in callers.iter().zip(&firsts) {
        t.send(caller).await.replays(first);
        assert_eq!(firsts.iter().filter(|other| other.body == first.body).count(), 1);
    }
    // What another used the key for is no reason to refuse.
    t.send(&Ask::post(r#"{"amount":1}"#).key(K1).tenant("TC")).await.fresh(201);
}

async fn scp_17(on: Kind) {
    let t = on.start(D).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate), Reply::created()]);
    let ask = Ask::post(B1).key(K1);
    let (of_a, of_b) = (ask.clone().tenant("TA"), ask.tenant("TB"));
    let (a, b) = tokio::join!(t.send(&of_a), async {
        until("A's execution", || t.n() == 1).await;
        let b = t.send(&of_b).await;
        gate.open();
        b
    });
    assert_ne!(a.fresh(201).body, b.fresh(201).body);
    assert_eq!(t.n(), 2);
}

async fn scp_21(on: Kind) {
    let t = on.start(D).await;
    let at = |path: &str| Ask::post(B1).key(K1).to(path);
    for (one, same) in [("/t%41", "/tA"), ("/%7euser", "/~user"), ("/a%2Db%5F%2e", "/a-b_.")] {
        let first = t.send(&at(one)).await.fresh(201);
        t.send(&at(same)).await.replays(&first);
    }
    assert_eq!(t.u.total(), 3);
    // What is reserved is left as it is.
    for (count, other) in ["/x/y", "/x%20y", "/x+y"].into_iter().enumerate() {
        t.send(&at(other)).await.fresh(201);
        assert_eq!(t.u.total(), 4 + count, "{other}");
    }
    for odd in ["/x%2Fy", "/x%2fy"] {
        t.send(&at(odd)).await.problem(400, "request_ambiguous");
    }
}

async fn scp_22(on: Kind) {
    let t = on.start(D).await;
    let at = |path: &str| Ask::post(B1).key(K1).to(path);
    let first = t.send(&at("/t?a=1&b=2")).await.fresh(201);
    for other in ["/t?b=2&a=1", "/t?a=1&b=3", "/t?a=1&b=2&", "/t?a=1&b=%32", "/t"] {
        t.send(&at(other)).await.problem(422, "idempotency_key_reused");
    }
    t.send(&at("/t?a=1&b=2")).await.replays(&first);
    assert_eq!(t.n(), 1);
}

async fn scp_25(on: Kind) {
    let t = on.start(D).await;
    let at = |path: &str, key: &str| Ask::post(B1).key(key).to(path);
    let first = t.send(&at("/t", K1)).await.fresh(201);
    t.send(&at("/t?", K1)).await.replays(&first);
    let second = t.send(&at("/t?", K2)).await.fresh(201);
    t.send(&at("/t", K2)).await.replays(&second);
    assert_eq!(t.n(), 2);
}

async fn header_in_the_scope(on: Kind) {
    const PARTS: &[&str] = &["principal", "host", "method", "path", "header:X-Tenant"];
    let t = on.start(&[Set::Scope(PARTS)]).await;
    let ask = Ask::post(B1).key(K1);
    let tenants = [
        ask.clone(),
        ask.clone().header("X-Tenant", "a"),
        ask.clone().header("X-Tenant", "b"),
        ask.clone().header("X-Tenant", "a").header("X-Tenant", "b"),
    ];
    for (n, tenant) in tenants.iter().enumerate() {
        let first = t.send(tenant).await.fresh(201);
        t.send(&tenant.clone().header("X-Other", "1")).await.replays(&first);
        assert_eq!(t.n(), n + 1);
    }
}
