//! The log of the binary.

use std::process::Command;

use serde_json::Value;

use crate::lab::{Gateway, Server, until};

#[test]
fn an_unknown_outcome_is_a_line_of_json_with_operation_and_route() {
    let upstream = Server::start("{}");
    let gateway = Gateway::start(upstream.address, "", "", "info");
    assert_eq!(gateway.post("order-4711", "x-do: reset\r\n", "{}").0, 502);
    until("the event", || gateway.errors().contains("outcome unknown"));
    let errors = gateway.errors();
    let line = errors.lines().find(|line| line.contains("outcome unknown")).unwrap();
    let event: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&event["level"], &event["route"]), (&"WARN".into(), &"default".into()));
    assert_eq!(event["operation"].as_str().unwrap().len(), 32);
    assert!(event["timestamp"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn the_filter_says_what_is_logged_and_other_crates_never_are() {
    let upstream = Server::start("{}");
    let quiet = Gateway::start(upstream.address, "", "", "error");
    assert_eq!(quiet.post("order-4711", "x-do: reset\r\n", "{}").0, 502);
    assert_eq!(quiet.post("order-4712", "", "{}").0, 201);
    assert_eq!(quiet.errors(), "");
    let loud = Gateway::start(upstream.address, "", "", "trace,h2=trace,hyper=trace");
    assert_eq!(loud.post("order-4711", "x-do: reset\r\n", "{}").0, 502);
    until("the event", || loud.errors().contains("outcome unknown"));
    for line in loud.errors().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["target"].as_str().unwrap().starts_with("onlyonce"), "{line}");
    }
}

#[test]
fn a_filter_that_does_not_read_is_a_usage_error() {
    let refused = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["serve", "--upstream", "http://127.0.0.1:9", "--log", "onlyonce=loud"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--log"), "{refused:?}");
}
