//! Requests that look as if they were not guarded, or as if they were for somebody else.

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::subject::Kind;
use crate::{B1, K1, on_both, on_gateway};

on_both! { a_method_in_another_case_is_refused, a_method_that_a_header_overrides_is_refused }

on_gateway! {
    a_host_that_is_said_twice_is_refused, a_method_of_a_route_in_another_case_is_refused, what_the_gateway_judges_by_is_not_dropped_on_the_way, connect_is_refused,
    a_target_without_a_path_is_refused, an_override_is_judged_by_the_route_of_its_method,
    only_a_websocket_may_change_the_protocol, what_only_observes_refuses_nothing,
}

// `patch` is another method to HTTP, and the same to many services.
async fn a_method_in_another_case_is_refused(on: Kind) {
    let t = on.start(D).await;
    for method in ["patch", "Patch", "post", "pOST"] {
        let answer = t.send(&Ask::post(B1).key(K1).method(method)).await;
        answer.problem(400, "request_ambiguous");
    }
    assert_eq!(t.u.total(), 0);
    // Without a key nothing is promised.
    t.send(&Ask::post(B1).method("patch")).await.fresh(200);
    let t = on.start(&[Set::KeyFrom(&["json:/id"])]).await;
    let in_body = Ask::post(r#"{"id":"k-1"}"#).method("patch");
    t.send(&in_body).await.problem(400, "request_ambiguous");
    assert_eq!(t.u.total(), 0);
}

async fn a_method_of_a_route_in_another_case_is_refused(on: Kind) {
    let route = "[[route]]\nmatch = \"PUT /t\"\n";
    let t = on.start(&[Set::Toml(route)]).await;
    let put = Ask::post(B1).key(K1);
    for method in ["put", "Put"] {
        t.send(&put.clone().method(method)).await.problem(400, "request_ambiguous");
    }
    assert_eq!(t.u.total(), 0);
    t.send(&put.method("PUT")).await.fresh(200);
}

// Many services take the header for the method.
async fn a_method_that_a_header_overrides_is_refused(on: Kind) {
    let t = on.start(D).await;
    for (method, name) in [("GET", "X-HTTP-Method-Override"), ("PUT", "X-Method-Override")] {
        let ask = Ask::bare(method, "/t").header(name, "post");
        t.send(&ask.clone().key(K1)).await.problem(400, "request_ambiguous");
        t.send(&ask).await.fresh(200);
    }
    assert_eq!(t.n(), 2, "those without a key");
}

// threat G16
async fn a_host_that_is_said_twice_is_refused(on: Kind) {
    let t = on.start(D).await;
    let ask = Ask::post(B1).key(K1);
    for odd in [
        ask.clone().header("Host", "api.test"),
        ask.clone().header("Host", "other.test"),
        ask.clone().to("http://other.test/t"),
        ask.clone().to("http://api.test:81/t"),
        ask.clone().to("http://me@api.test/t"),
        Ask::without_host(B1).key(K1).header("Host", "x/accounts/999"),
        Ask::without_host(B1).key(K1).header("Host", "me@api.test"),
    ] {
        t.send(&odd).await.problem(400, "request_ambiguous");
    }
    let over_http2 = t.send_http2(&ask.clone().header("host", "other.test")).await;
    over_http2.problem(400, "request_ambiguous");
    assert_eq!(t.u.total(), 0);
    // The same name twice says one thing.
    let first = t.send(&ask.clone().to("http://API.test:80/t")).await.fresh(201);
    t.send(&ask.clone()).await.replays(&first);
    t.send_http2(&ask.header("host", "api.test")).await.replays(&first);
}

// A field that `Connection` names ends at this hop: the upstream would see another request than was judged.
async fn what_the_gateway_judges_by_is_not_dropped_on_the_way(on: Kind) {
    let lines = r#"principal = "header:X-User"
key_from = ["header:X-Key"]"#;
    let t = on.start(&[Set::Toml(lines)]).await;
    let ask = Ask::post(B1).header("X-Key", K1).header("X-User", "ann").header("Cookie", "a=b");
    for name in ["host", "X-Key", "x-user", "Cookie", "Content-Type", "X-HTTP-Method-Override"] {
        for list in [name.to_owned(), format!("close, {name}"), format!("{name} ,x")] {
            let answer = t.send(&ask.clone().header("Connection", list)).await;
            answer.problem(400, "request_ambiguous");
        }
    }
    assert_eq!(t.u.total(), 0);
    let named = |name: &str, value: &str| {
        let ask = Ask::post(B1).key(K1).header(name, value);
        ask.header("Connection", name)
    };
    for (lines, odd) in [
        ("", Ask::post(B1).key(K1).header("Connection", "idempotency-key")),
        ("", named("Authorization", "Bearer ann")),
        ("", named("X-Api-Key", "ann")),
        (r#"scope = ["principal", "path", "header:X-Tenant"]"#, named("X-Tenant", "t1")),
    ] {
        let t = on.start(&[Set::Toml(lines)]).await;
        t.send(&odd).await.problem(400, "request_ambiguous");
        assert_eq!(t.u.total(), 0, "{odd:?}");
    }
    // Any other field may be named, and is not passed on.
    let ask = ask.header("X-Hop", "1").header("Connection", "X-Hop");
    t.send(&ask).await.fresh(201);
    assert_eq!(t.u.seen()[0].header("x-hop"), None);
}

// The gateway would judge no path at all, and the service see `/`.
async fn a_target_without_a_path_is_refused(on: Kind) {
    let route = "[[route]]\nmatch = \"POST /\"\nkey = \"required\"\n";
    let t = on.start(&[Set::Toml(route)]).await;
    let ask = Ask::without_host(B1).header("Host", "api.test:80").to("api.test:80");
    t.send(&ask).await.problem(400, "request_ambiguous");
    assert_eq!(t.u.total(), 0);
}

async fn an_override_is_judged_by_the_route_of_its_method(on: Kind) {
    let route = "[[route]]\nmatch = \"POST /t\"\nkey_from = [\"header:X-Payment-Key\"]\n";
    let t = on.start(&[Set::Toml(route)]).await;
    let put = Ask::post(B1).method("PUT").header("X-HTTP-Method-Override", "post");
    t.send(&put.clone().header("X-Payment-Key", K1)).await.problem(400, "request_ambiguous");
    assert_eq!(t.u.total(), 0);
    t.send(&put).await.fresh(200);
}

// threat G16
async fn connect_is_refused(on: Kind) {
    let t = on.start(D).await;
    for ask in [Ask::bare("CONNECT", "api.test:443"), Ask::bare("CONNECT", "/t").key(K1)] {
        let status = t.try_send(&ask).await.map(|answer| answer.status);
        assert!(matches!(status, Ok(400 | 405)), "{status:?}");
    }
    assert_eq!(t.u.total(), 0);
}

// With `Upgrade: h2c` the rest of the connection would pass by, unseen.
async fn only_a_websocket_may_change_the_protocol(on: Kind) {
    let t = on.start(D).await;
    for (method, protocol) in [("GET", "h2c"), ("GET", "websocket, h2c"), ("POST", "websocket")] {
        let ask = Ask::bare(method, "/t").header("Upgrade", protocol);
        t.send(&ask.header("Connection", "Upgrade")).await;
        let seen = t.u.seen();
        let seen = seen.last().expect("it is passed on");
        assert_eq!((seen.header("upgrade"), seen.header("connection")), (None, None), "{protocol}");
    }
}

async fn what_only_observes_refuses_nothing(on: Kind) {
    let t = on.start(&[Set::Toml("mode = \"observe\""), Set::Required]).await;
    let ask = Ask::post(B1).key(K1);
    for odd in [
        Ask::post(B1),
        ask.clone().header("Connection", "idempotency-key"),
        ask.clone().header("Cookie", "session=1"),
        ask.clone().key("another"),
        ask.clone().to("http://other.test/t"),
    ] {
        t.send(&odd).await.fresh(201);
    }
    t.send(&ask.clone().method("patch")).await.fresh(200);
    t.send(&ask.clone()).await.fresh(201);
    t.send(&ask).await.fresh(201);
    assert_eq!(t.n(), 8);
}
