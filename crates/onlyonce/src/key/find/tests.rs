//! Where keys are found, and what is in the way.

use http::Request;

use super::*;
use crate::fingerprint::{FingerprintRules, Subject};

// R1, R16: SYN-29
#[test]
fn a_header_is_found_whatever_the_case_of_its_name() {
    for name in ["idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"] {
        let head = head(Request::post("/t").header(name, "k1"));
        assert_eq!(text(find_in("header:Idempotency-Key", &head, "")), Ok(Some("k1".into())));
    }
    let head = head(Request::post("/t").header("PayPal-Request-Id", "k1"));
    assert_eq!(text(find_in("header:paypal-request-id", &head, "")), Ok(Some("k1".into())));
    assert_eq!(text(find_in("header:X-Idempotency-Key", &head, "")), Ok(None));
}

// R7: SYN-13
#[test]
fn a_doubled_header_is_refused() {
    let head = head(Request::post("/t").header("webhook-id", "k1").header("webhook-id", "k1"));
    assert_eq!(text(find_in("header:webhook-id", &head, "")), Err(KeyError::Several));
}

// Which of the two the service reads the body by, nobody knows.
#[test]
fn a_body_with_two_media_types_has_no_readable_key() {
    let plain = Request::post("/t").header("content-type", "text/plain");
    let head = head(plain.header("content-type", "application/json"));
    for source in ["json:/k", "form:k"] {
        let found = find_in(source, &head, r#"{"k":"1"}"#);
        assert_eq!(text(found), Err(KeyError::Unreadable), "{source}");
        assert_eq!(text(find_in(source, &head, "")), Ok(None));
    }
}

// R17: SYN-37
#[test]
fn a_key_is_found_in_a_json_body() {
    let cases = [
        (r#"{"t":{"ref":"po-1"}}"#, Ok(Some("po-1".into()))),
        (r#"{"t":{"ref":10.0}}"#, Ok(Some("10.0".into()))),
        (r#"{"t":{}}"#, Ok(None)),
        ("", Ok(None)),
        (r#"{"t":{"ref":null}}"#, Err(KeyError::NotText)),
        (r#"{"t":{"ref":true}}"#, Err(KeyError::NotText)),
        (r#"{"t":{"ref":["a"]}}"#, Err(KeyError::NotText)),
        (r#"{"t":{"ref":""}}"#, Err(KeyError::Empty)),
        (r#"{"t":{"ref":"é"}}"#, Err(KeyError::NotPrintable)),
        (r#"{"t":{"ref":"a","ref":"b"}}"#, Err(KeyError::Unreadable)),
        (r#"{"t":"#, Err(KeyError::Unreadable)),
    ];
    for (body, expected) in cases {
        for head in [typed("application/json"), head(Request::post("/t"))] {
            assert_eq!(text(find_in("json:/t/ref", &head, body)), expected, "{body}");
        }
    }
}

// threat G23
#[test]
fn json_under_another_name_is_read_as_json() {
    let names = [
        "text/json",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "application/x-json",
        "application/json-rpc",
        "application/jsonrequest",
        "application/json, application/json",
        "json,json",
        "application/octet-stream",
        "",
    ];
    for name in names {
        let find = |body: &str| text(find_in("json:/t/ref", &typed(name), body));
        assert_eq!(find(r#"{"t":{"ref":"po-1"}}"#), Ok(Some("po-1".into())), "{name}");
        assert_eq!(
            find("\u{feff} {\"t\":{\"ref\":\"po-1\"}}"),
            Err(KeyError::Unreadable),
            "{name}"
        );
        assert_eq!(find(r#"{"t":{"ref":"po-1""#), Err(KeyError::Unreadable), "{name}");
        assert_eq!(find("{\0\"\0t\0"), Err(KeyError::Unreadable), "{name}");
        assert_eq!(find(r#"{"t":{}}"#), Ok(None), "{name}");
    }
    let find = |name: &str, body: &str| text(find_in("json:/t/ref", &typed(name), body));
    assert_eq!(find("text/plain", "t=1"), Ok(None));
    assert_eq!(find("application/x-www-form-urlencoded", "t=1"), Ok(None));
    assert_eq!(find("image/png", "\u{89}PNG"), Ok(None));
}

// threat G23
#[test]
fn a_coded_body_of_whatever_media_type_cannot_be_searched() {
    for name in ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream"] {
        let coded = Request::post("/t").header("content-type", name);
        let head = head(coded.header("content-encoding", "gzip"));
        for source in ["json:/k", "form:k"] {
            assert_eq!(text(find_in(source, &head, "x")), Err(KeyError::Unreadable), "{name}");
        }
    }
}

// threat G23
#[test]
fn a_form_under_another_name_is_refused() {
    let part = "--b\r\nContent-Disposition: form-data; name=\"k\"\r\n\r\nx\r\n--b--";
    let bare = "--b\r\nContent-Disposition: form-data; name=k\r\n\r\nx\r\n--b--";
    for name in ["text/plain", "application/x-www-form", "multipart/mixed; boundary=b", ""] {
        for body in ["k=x", "a=1&k=x", "k=x\r\na=1", part, bare] {
            let found = text(find_in("form:k", &typed(name), body));
            assert_eq!(found, Err(KeyError::Unreadable), "{name} {body}");
        }
        assert_eq!(text(find_in("form:k", &typed(name), "a=1")), Ok(None), "{name}");
        assert_eq!(text(find_in("form:k", &typed(name), r#"{"k":"x"}"#)), Ok(None), "{name}");
    }
}

// R17
#[test]
fn a_key_is_found_in_a_query() {
    let find = |uri: &str| text(find_in("query:k", &head(Request::post(uri)), ""));
    assert_eq!(find("/t?a=1&k=x%20y"), Ok(Some("x y".into())));
    assert_eq!(find("/t?a=%zz&k=x"), Ok(Some("x".into())));
    assert_eq!(find("/t?a=1"), Ok(None));
    assert_eq!(find("/t"), Ok(None));
    assert_eq!(find("/t?k="), Err(KeyError::Empty));
    assert_eq!(find("/t?k=x&k=x"), Err(KeyError::Several));
    assert_eq!(find("/t?k=%"), Err(KeyError::Unreadable));
    assert_eq!(find("/t?k=%ff"), Err(KeyError::NotPrintable));
}

// R17
#[test]
fn a_key_is_found_in_a_form() {
    let form = typed("application/x-www-form-urlencoded");
    assert_eq!(text(find_in("form:k", &form, "a=1&k=x")), Ok(Some("x".into())));
    assert_eq!(text(find_in("form:k", &form, "k=x&k=y")), Err(KeyError::Several));
    assert_eq!(text(find_in("form:k", &typed("application/json"), "{}")), Ok(None));
    let parts = typed("multipart/form-data; boundary=b");
    let body = "--b\r\nContent-Disposition: form-data; name=k\r\n\r\nx\r\n--b--";
    assert_eq!(text(find_in("form:k", &parts, body)), Ok(Some("x".into())));
    assert_eq!(text(find_in("form:k", &parts, "k=x")), Err(KeyError::Unreadable));
}

// R17
#[test]
fn a_body_with_a_content_coding_cannot_be_searched() {
    let head = head(
        Request::post("/t")
            .header("content-type", "application/json")
            .header("content-encoding", "gzip"),
    );
    assert_eq!(text(find_in("json:/k", &head, "x")), Err(KeyError::Unreadable));
}

// R18: SYN-38
#[test]
fn sources_that_have_a_key_must_agree() {
    let head = head(
        Request::post("/t?k=k1").header("k", "\"k1\"").header("content-type", "application/json"),
    );
    let sources = ["header:k", "query:k", "json:/k"];
    let find = |body: &str| text(find_all(&sources, &head, body, None));
    assert_eq!(find(r#"{"k":"k1"}"#), Ok(Some("k1".into())));
    assert_eq!(find("{}"), Ok(Some("k1".into())));
    assert_eq!(find(r#"{"k":"k2"}"#), Err(KeyError::Disagreement));
}

// R17
#[test]
fn the_fingerprint_is_the_key_of_requests_that_have_no_other() {
    let headers = http::HeaderMap::new();
    let subject =
        Subject { method: "POST", path: "/t", query: None, headers: &headers, body: b"x" };
    let fingerprint = Fingerprint::of(&FingerprintRules::default(), &subject);
    let sources = ["fingerprint", "header:k"];
    let bare = head(Request::post("/t"));
    let key = find_all(&sources, &bare, "x", Some(&fingerprint)).unwrap().unwrap();
    assert_eq!(key.as_str(), hex::encode(&fingerprint.canonical));
    let keyed = head(Request::post("/t").header("k", "k1"));
    assert_eq!(text(find_all(&sources, &keyed, "x", Some(&fingerprint))), Ok(Some("k1".into())));
    assert_eq!(text(find_all(&["header:k"], &bare, "x", Some(&fingerprint))), Ok(None));
}

// R16, R17
#[test]
fn sources_are_read_and_written_back() {
    for text in
        ["header:idempotency-key", "json:/a/b", "json:", "query:x", "form:a:b", "fingerprint"]
    {
        let source: KeySource = text.parse().unwrap();
        assert_eq!(source.to_string(), text);
        assert_eq!(source.needs_body(), !text.starts_with("header") && !text.starts_with("query"));
    }
    assert_eq!("header:Idempotency-Key".parse(), Ok(KeySource::default()));
    for text in
        ["", "cookie:x", "header:", "header:a b", "json:a", "query:", "form", "fingerprint:x"]
    {
        assert!(text.parse::<KeySource>().is_err(), "{text}");
    }
}

fn find_in(source: &str, head: &Parts, body: &str) -> Result<Option<Key>, KeyError> {
    find_all(&[source], head, body, None)
}

fn find_all(
    sources: &[&str],
    head: &Parts,
    body: &str,
    fingerprint: Option<&Fingerprint>,
) -> Result<Option<Key>, KeyError> {
    let sources: Vec<KeySource> = sources.iter().map(|source| source.parse().unwrap()).collect();
    find(&sources, head, Some(body.as_bytes()), fingerprint, &KeyRules::default())
}

fn text(found: Result<Option<Key>, KeyError>) -> Result<Option<String>, KeyError> {
    found.map(|key| key.map(|key| key.as_str().to_owned()))
}

fn typed(content_type: &str) -> Parts {
    head(Request::post("/t").header("content-type", content_type))
}

fn head(builder: http::request::Builder) -> Parts {
    builder.body(()).unwrap().into_parts().0
}
