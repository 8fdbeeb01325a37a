//! No key, credential or body is in any log, metric or trace.

use crate::lab::{Gateway, Server, until};

// threats G20, H5
#[test]
fn keys_credentials_and_bodies_are_in_no_log_metric_or_trace() {
    let mut redis = servers::Redis::start(&["--appendonly yes", "--appendfsync always"]);
    let upstream = Server::start("{\"secret\":\"CANARY4f1c-answer\"}");
    let collector = Server::start("{}");
    let store = format!("store = \"{}\"", redis.url());
    // Callers with a session cookie beside their token are told apart by what the configuration says alone.
    let end = format!(
        "[otlp]\nendpoint = \"http://{}\"\n[policy]\nprincipal = \"header:authorization\"",
        collector.address
    );
    let mut gateway = Gateway::start(upstream.address, &store, &end, "trace");
    let cards = |number| format!("{{\"card\":\"{CANARY}-body-{number}\"}}");
    let ask = |gateway: &Gateway, key: &str, more: &str, body: &str| {
        let key = if key.is_empty() { String::new() } else { format!("{CANARY}-{key}") };
        gateway.post(&key, &format!("{CREDENTIALS}{more}"), body).0
    };
    assert_eq!(ask(&gateway, "fresh", "", &cards(1)), 201);
    assert_eq!(ask(&gateway, "fresh", "", &cards(1)), 201, "a replay");
    assert_eq!(ask(&gateway, "fresh", "", &cards(2)), 422, "another request");
    assert_eq!(ask(&gateway, "unknown", "x-do: reset\r\n", &cards(1)), 502);
    assert_eq!(ask(&gateway, "unknown", "", &cards(1)), 409);
    assert_eq!(ask(&gateway, "", "", &cards(1)), 201, "no key");
    assert_eq!(ask(&gateway, &"x".repeat(300), "", &cards(1)), 400, "no good key");
    let context = format!("traceparent: {CANARY}\r\ntracestate: a={CANARY}\r\n");
    assert_eq!(ask(&gateway, "traced", &context, &cards(1)), 201);
    until("the traces", || collector.got().join("").contains("\"settle\""));
    redis.kill();
    assert_eq!(ask(&gateway, "store-down", "", &cards(1)), 503);
    until("the event", || gateway.errors().contains("the store does not answer"));
    let metrics = gateway.get("/metrics").1;
    gateway.stop();
    let (log, traces) = (gateway.errors(), collector.got().join("\n"));
    assert!(log.contains("outcome unknown") && traces.contains("\"execute\""));
    for (what, text) in [("log", &log), ("metrics", &metrics), ("traces", &traces)] {
        assert_eq!(found(text), None, "in the {what}");
    }
    // The search finds what it looks for: the upstream was sent all of it.
    let sent = upstream.got().join("\n");
    for part in ["-fresh", "-token", "-api-key", "-session", "-body-1"] {
        assert!(found(&sent).is_some() && sent.contains(&format!("{CANARY}{part}")), "{part}");
    }
}

/// The line with a canary, whatever its case.
fn found(text: &str) -> Option<&str> {
    text.lines().find(|line| line.to_lowercase().contains(&CANARY.to_lowercase()))
}

const CANARY: &str = "CANARY4f1c";
const CREDENTIALS: &str = "Authorization: Bearer CANARY4f1c-token\r\nX-Api-Key: CANARY4f1c-api-key\r\nCookie: session=CANARY4f1c-session\r\n";
