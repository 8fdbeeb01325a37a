//! Who may do what: no, a wrong, the read-only and the operator's token, on every endpoint.

use serde_json::Value;

use crate::lab::{Lab, OPERATOR, READER, ask};

/// Every method and path of the API, as its description has them.
fn endpoints(lab: &Lab) -> Vec<(String, String)> {
    let document: Value = lab.get("openapi.json");
    let mut endpoints = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "00000000000000000000000000000000");
        endpoints.extend(
            methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())),
        );
    }
    assert!(endpoints.len() >= 16, "{endpoints:?}");
    endpoints
}

/// The status, read from the head alone: the stream of events does not end.
fn status(lab: &Lab, method: &str, path: &str, headers: &str) -> u16 {
    if path.ends_with("/events") {
        return crate::stream::head(&lab.admin, path, headers).0;
    }
    ask(&lab.admin, method, path, &format!("{headers}Content-Type: application/json\r\n"), "{}")
        .status
}

/// Whoever asks for health, or what listens here, shows no token.
fn is_open(path: &str) -> bool {
    path.starts_with("/health/") || path == "/api/v1/gateway"
}

#[test]
fn every_endpoint_asks_for_the_right_token() {
    let lab = Lab::with_tokens();
    for (method, path) in endpoints(&lab) {
        let status = |headers: &str| status(&lab, &method, &path, headers);
        let is_open = is_open(&path);
        for wrong in
            ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic operators-token\r\n"]
        {
            let expected = if is_open { 200 } else { 401 };
            assert_eq!(status(wrong), expected, "{method} {path} {wrong:?}");
        }
        let read = status(READER);
        let operated = status(OPERATOR);
        // To compare the trail with heads that were kept changes nothing.
        match method == "GET" || path.ends_with("/audit/verify") {
            true => assert!(![401, 403].contains(&read), "{path} {read}"),
            false => assert_eq!(read, 403, "{path}"),
        }
        assert!(![401, 403].contains(&operated), "{method} {path} {operated}");
    }
    let summary =
        |token| ask(&lab.admin, "GET", "/api/v1/summary", token, "").json()["writable"].clone();
    assert_eq!((summary(READER), summary(OPERATOR)), (false.into(), true.into()));
    let refused = ask(&lab.admin, "GET", "/api/v1/summary", "", "");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
}

#[test]
fn without_a_token_no_other_host_and_no_other_site_is_answered() {
    let lab = Lab::start();
    for (method, path) in endpoints(&lab).into_iter().filter(|(_, path)| !is_open(path)) {
        for foreign in [
            "Host: evil.test\r\n",
            "Origin: http://evil.test\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
        ] {
            assert_eq!(status(&lab, &method, &path, foreign), 403, "{method} {path} {foreign:?}");
        }
    }
    assert_eq!(ask(&lab.admin, "GET", "/", "Host: evil.test\r\n", "").status, 403);
    assert_eq!(ask(&lab.admin, "GET", "/", "", "").status, 200);
}

#[test]
fn every_answer_has_the_security_headers_and_none_allows_another_site() {
    let lab = Lab::start();
    for path in [
        "/",
        "/assets/app.js",
        "/health/live",
        "/api/v1/summary",
        "/nothing",
        "/api/v1/operations?x=1",
    ] {
        let answer = ask(&lab.admin, "GET", path, "Origin: http://evil.test\r\n", "");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe-inline"),
            "{policy}"
        );
        assert!(
            !answer.head.to_ascii_lowercase().contains("access-control-"),
            "{path}: {}",
            answer.head
        );
    }
}
