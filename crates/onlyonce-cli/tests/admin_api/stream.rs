//! Events as they happen.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lab::Lab;

/// The status of a stream, and the rest of it.
pub(crate) fn head(address: &str, path: &str, headers: &str) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let host =
        if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{host}{headers}\r\n").as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    (status, reader)
}

/// The data of the next event with this name.
fn next(reader: &mut BufReader<TcpStream>, name: &str) -> Value {
    loop {
        let (event, data) = next_of_any(reader);
        if event == name {
            return data;
        }
    }
}

/// The name and the data of the next event.
fn next_of_any(reader: &mut BufReader<TcpStream>) -> (String, Value) {
    let mut name = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the stream ended");
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.trim().to_owned();
        }
        if let Some(data) = line.strip_prefix("data: ") {
            return (name, serde_json::from_str(data).unwrap());
        }
    }
}

#[test]
fn a_listener_hears_what_it_asked_for_and_the_counts() {
    let lab = Lab::start();
    let (status, mut unknown) = head(&lab.admin, "/api/v1/events?state=unknown", "");
    assert_eq!(status, 200);
    let counts = next(&mut unknown, "counts");
    assert_eq!(counts["states"]["unknown"], 0);
    lab.send("/pay", "order-1");
    let id = lab.unknown("order-2");
    let event = next(&mut unknown, "operation");
    assert_eq!(
        (&event["kind"], &event["id"], &event["key"]),
        (&json!("unknown"), &json!(id), &json!("order-2"))
    );
}

#[test]
fn a_listener_with_a_rate_hears_the_newest_and_how_many_were_left_out() {
    let lab = Lab::start();
    let (status, mut slow) = head(&lab.admin, "/api/v1/events?rate=1", "");
    assert_eq!(status, 200);
    let orders = 40;
    for order in 0..orders {
        lab.send("/pay", &format!("order-{order}"));
    }
    // Each is claimed and executed.
    let (mut told, mut left_out, mut last) = (0, 0, Value::Null);
    while told + left_out < 2 * orders {
        match next_of_any(&mut slow) {
            (name, event) if name == "operation" => {
                told += 1;
                last = event;
            }
            (name, missed) if name == "missed" => left_out += missed["missed"].as_u64().unwrap(),
            _ => {}
        }
    }
    assert_eq!((&last["kind"], &last["key"]), (&json!("executed"), &json!("order-39")));
    assert_eq!(told + left_out, 2 * orders);
    assert!(told < orders, "one of many is told: {told} of {}", 2 * orders);
}

#[test]
fn a_rate_that_is_none_is_refused() {
    let lab = Lab::start();
    for rate in ["0", "1001", "-1", "many", "", "1&rate=1"] {
        let (status, _) = head(&lab.admin, &format!("/api/v1/events?rate={rate}"), "");
        assert_eq!(status, 400, "{rate:?}");
    }
}

#[test]
fn there_is_a_bound_to_the_listeners() {
    let lab = Lab::start();
    let listeners: Vec<_> = (0..32).map(|_| head(&lab.admin, "/api/v1/events", "")).collect();
    assert!(listeners.iter().all(|(status, _)| *status == 200));
    assert_eq!(head(&lab.admin, "/api/v1/events", "").0, 503);
    assert_eq!(head(&lab.admin, "/api/v1/events?kind=nonsense", "").0, 400);
}
