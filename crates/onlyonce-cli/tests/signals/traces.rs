//! Traces to an OpenTelemetry collector.

use std::net::TcpListener;
use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use serde_json::Value;

use crate::lab::{Gateway, Server, until};

#[test]
fn claim_execute_and_settle_are_children_of_the_clients_trace() {
    let (upstream, collector) = (Server::start("{}"), Server::start("{}"));
    let gateway = Gateway::start(upstream.address, "", &otlp(&collector), "info");
    let headers = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: shop=1\r\n");
    assert_eq!(gateway.post("order-4711", &headers, "{}").0, 201);
    until("the spans", || named(&collector, "request").is_some());
    let span = |name| named(&collector, name).unwrap_or_else(|| panic!("no span {name}"));
    let request = span("request");
    assert_eq!((&request["traceId"], &request["parentSpanId"]), (&TRACE.into(), &PARENT.into()));
    for name in ["claim", "execute", "settle"] {
        assert_eq!(span(name)["traceId"], TRACE, "{name}");
        assert_eq!(span(name)["parentSpanId"], request["spanId"], "{name}");
        let times = ["startTimeUnixNano", "endTimeUnixNano"]
            .map(|time| span(name)[time].as_str().unwrap().parse::<u64>().unwrap());
        assert!(times[0] > 1_700_000_000_000_000_000 && times[0] <= times[1], "{name}: {times:?}");
    }
    // What the upstream got is a child of `execute`.
    let sent = upstream.got().join("\n");
    let execute = span("execute")["spanId"].as_str().unwrap().to_owned();
    assert!(sent.contains(&format!("traceparent: 00-{TRACE}-{execute}-01")), "{sent}");
    assert!(sent.contains("tracestate: shop=1"), "{sent}");
    until("the count", || {
        let page = gateway.get("/metrics").1;
        page.lines()
            .any(|line| line.starts_with("onlyonce_otlp_exported_total ") && !line.ends_with(" 0"))
    });
}

#[test]
fn a_trace_that_is_not_sampled_is_passed_on_and_not_sent() {
    let (upstream, collector) = (Server::start("{}"), Server::start("{}"));
    let mut gateway = Gateway::start(upstream.address, "", &otlp(&collector), "info");
    let headers = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n");
    assert_eq!(gateway.post("order-4711", &headers, "{}").0, 201);
    assert_eq!(
        gateway.post("order-4712", "traceparent: nonsense\r\ntracestate: shop=1\r\n", "{}").0,
        201
    );
    // The end of the process sends what waits.
    gateway.stop();
    let spans = spans(&collector);
    assert!(!spans.is_empty() && spans.iter().all(|span| span["traceId"] != TRACE), "{spans:?}");
    let sent = upstream.got();
    assert!(sent[0].contains(&format!("traceparent: 00-{TRACE}-")), "{}", sent[0]);
    assert!(!sent[1].contains("nonsense") && !sent[1].contains("tracestate"), "{}", sent[1]);
}

#[test]
fn without_a_collector_the_context_is_passed_on_as_it_came() {
    let upstream = Server::start("{}");
    let gateway = Gateway::start(upstream.address, "", "", "debug");
    let header = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    assert_eq!(gateway.post("order-4711", &format!("{header}\r\n"), "{}").0, 201);
    assert!(upstream.got()[0].contains(&header));
}

#[test]
fn a_dead_or_silent_collector_slows_nothing_and_is_counted() {
    let upstream = Server::start("{}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [free, silent.local_addr().unwrap()] {
        let end = format!("[otlp]\nendpoint = \"http://{address}\"");
        let gateway = Gateway::start(upstream.address, "", &end, "info");
        let start = SystemClock.boot();
        for number in 0..20 {
            assert_eq!(gateway.post(&format!("order-{number}"), "", "{}").0, 201);
        }
        let took = SystemClock.boot() - start;
        assert!(took < Duration::from_secs(4), "{took:?}");
        until("the count of dropped spans", || {
            let page = gateway.get("/metrics").1;
            let dropped =
                page.lines().find_map(|line| line.strip_prefix("onlyonce_otlp_dropped_total "));
            dropped.unwrap().parse::<u64>().unwrap() > 0
        });
    }
}

fn otlp(collector: &Server) -> String {
    format!("[otlp]\nendpoint = \"http://{}\"", collector.address)
}

fn spans(collector: &Server) -> Vec<Value> {
    let bodies = collector.got().into_iter().map(|request| {
        assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request}");
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<Value>(body).unwrap()
    });
    let spans = bodies.flat_map(|body| {
        body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    });
    spans.collect()
}

fn named(collector: &Server, name: &str) -> Option<Value> {
    spans(collector).into_iter().find(|span| span["name"] == name)
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
