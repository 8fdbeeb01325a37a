//! What comes from outside: nothing of the admin listener is reachable through the listener of the clients, and what is
//! too large or of another kind is refused.

use serde_json::json;

use crate::lab::{Lab, OPERATOR, ask};

// threat G17
#[test]
fn the_listener_of_the_clients_has_nothing_for_operators() {
    let lab = Lab::start();
    for path in [
        "/api/v1/summary",
        "/api/v1/operations",
        "/metrics",
        "/health/ready",
        "/",
        "/assets/app.js",
    ] {
        let answer = ask(&lab.address, "GET", path, "", "");
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (201, "charged"),
            "{path} went to the service"
        );
    }
}

#[test]
fn what_is_too_large_or_of_another_kind_is_refused() {
    let lab = Lab::start();
    let id = lab.unknown("order-1");
    let path = format!("/api/v1/operations/{id}/settle");
    let body = json!({"status": 200, "body": "x".repeat(2 << 20), "reason": "r"}).to_string();
    let large = ask(&lab.admin, "POST", &path, "Content-Type: application/json\r\n", &body);
    assert_eq!((large.status, large.code().as_str()), (413, "too_large"));
    let form = ask(
        &lab.admin,
        "POST",
        &path,
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "{\"failed\":true,\"reason\":\"r\"}",
    );
    assert_eq!((form.status, form.code().as_str()), (415, "unsupported_media_type"));
    let head = format!("X-Long: {}\r\n", "x".repeat(300_000));
    assert_eq!(ask(&lab.admin, "GET", "/health/live", &head, "").status, 431);
    let other = ask(&lab.admin, "DELETE", "/api/v1/summary", OPERATOR, "");
    assert_eq!((other.status, other.header("allow")), (405, Some("GET")));
    assert_eq!(lab.get(&format!("operations/{id}"))["state"], "unknown");
}
