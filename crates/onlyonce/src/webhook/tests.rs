use http::Request;

use super::*;
use crate::key::{self, KeyRules};

fn head(lines: &[(&str, &str)]) -> Parts {
    let mut request = Request::post("/hooks");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn at(seconds: i64) -> StoreTime {
    StoreTime::from_ms(seconds * 1_000)
}

fn verifier(provider: Provider, secrets: &[&str]) -> Verifier {
    Verifier::new(provider, secrets).unwrap()
}

/// The example that the libraries of Standard Webhooks are tested with.
const STANDARD: [(&str, &str); 3] = [
    ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
    ("webhook-timestamp", "1614265330"),
    ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
];
const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const STANDARD_BODY: &[u8] = br#"{"test": 2432232314}"#;
const OTHER_SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

// R141
#[test]
fn the_example_of_standard_webhooks_is_genuine() {
    for secrets in [&[STANDARD_SECRET][..], &[OTHER_SECRET, STANDARD_SECRET]] {
        let verifier = verifier(Provider::Standard, secrets);
        let verify = |now| verifier.verify(&head(&STANDARD), STANDARD_BODY, at(now));
        assert_eq!(verify(1_614_265_330), Ok(()));
        assert_eq!(verify(1_614_265_330 + 300), Ok(()));
        assert_eq!(verify(1_614_265_330 - 300), Ok(()));
        assert_eq!(verify(1_614_265_330 + 301), Err(Unverified::Untimely));
        assert_eq!(verify(1_614_265_330 - 301), Err(Unverified::Untimely));
    }
}

#[test]
fn any_of_several_signatures_counts_and_other_versions_do_not() {
    let verifier = verifier(Provider::Standard, &[STANDARD_SECRET]);
    let verify = |signature: &str| {
        let lines = [STANDARD[0], STANDARD[1], ("webhook-signature", signature)];
        verifier.verify(&head(&lines), STANDARD_BODY, at(1_614_265_330))
    };
    let good = STANDARD[2].1;
    assert_eq!(verify(&format!("v1a,AAAA v1,AAAA {good}")), Ok(()));
    for bad in [&good.replace("v1,", "v1a,"), &good.replace('g', "h"), "v1,", "", "v1"] {
        assert_eq!(verify(bad), Err(Unverified::Signature), "{bad}");
    }
}

#[test]
fn what_standard_webhooks_sign_cannot_change() {
    let verifier = verifier(Provider::Standard, &[STANDARD_SECRET]);
    let verify = |lines: &[(&str, &str)], body: &[u8]| {
        verifier.verify(&head(lines), body, at(1_614_265_330))
    };
    let with = |at: usize, value| {
        let mut lines = STANDARD;
        lines[at].1 = value;
        lines
    };
    assert_eq!(verify(&STANDARD, b"{}"), Err(Unverified::Signature));
    assert_eq!(verify(&with(0, "msg_2"), STANDARD_BODY), Err(Unverified::Signature));
    assert_eq!(verify(&with(1, "1614265331"), STANDARD_BODY), Err(Unverified::Signature));
    let doubled = [STANDARD[0], STANDARD[1], STANDARD[2], STANDARD[2]];
    assert_eq!(verify(&doubled, STANDARD_BODY), Err(Unverified::Header("webhook-signature")));
    assert_eq!(verify(&STANDARD[1..], STANDARD_BODY), Err(Unverified::Header("webhook-id")));
    assert_eq!(verify(&with(0, "a.b"), STANDARD_BODY), Err(Unverified::Header("webhook-id")));
}

// The example of GitHub's documentation.
#[test]
fn the_example_of_github_is_genuine() {
    let verifier = verifier(Provider::Github, &["another", "It's a Secret to Everybody"]);
    let digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let verify = |signature: &str, body: &[u8]| {
        verifier.verify(&head(&[("x-hub-signature-256", signature)]), body, at(0))
    };
    assert_eq!(verify(&format!("sha256={digest}"), b"Hello, World!"), Ok(()));
    assert_eq!(verify(&format!("sha256={digest}"), b"Hello, World?"), Err(Unverified::Signature));
    assert_eq!(verify(digest, b"Hello, World!"), Err(Unverified::Signature));
    assert_eq!(verify("sha256=", b"Hello, World!"), Err(Unverified::Signature));
}

#[test]
fn a_stripe_signature_covers_its_timestamp() {
    let verifier = verifier(Provider::Stripe, &["whsec_test"]);
    let body: &[u8] = br#"{"id":"evt_1"}"#;
    let mac = "c89214b5b5da833daed6f0b8c5bb6bd58cea9022bd80ccc78230f3942d632925";
    let verify =
        |line: &str, now| verifier.verify(&head(&[("stripe-signature", line)]), body, at(now));
    assert_eq!(verify(&format!("t=1700000000,v1={mac},v0=00"), 1_700_000_000), Ok(()));
    assert_eq!(verify(&format!("t=1700000000, v1=00, v1={mac}"), 1_700_000_000), Ok(()));
    let late = verify(&format!("t=1700000000,v1={mac}"), 1_700_000_301);
    assert_eq!(late, Err(Unverified::Untimely));
    let moved = verify(&format!("t=1700000300,v1={mac}"), 1_700_000_301);
    assert_eq!(moved, Err(Unverified::Signature));
    for malformed in ["", "v1=00", "t=1,t=2,v1=00"] {
        let verified = verify(malformed, 1_700_000_000);
        assert_eq!(verified, Err(Unverified::Header("stripe-signature")), "{malformed}");
    }
    assert_eq!(
        verify(&format!("t=1700000000,v0={mac}"), 1_700_000_000),
        Err(Unverified::Signature)
    );
}

#[test]
fn secrets_that_cannot_be_right_are_refused() {
    let new = |provider, secrets: &[&str]| Verifier::new(provider, secrets).map(|_| ());
    assert_eq!(new(Provider::Github, &[]), Err(VerifierError::NoSecret));
    assert_eq!(new(Provider::Github, &[""]), Err(VerifierError::EmptySecret));
    for secret in ["whsec_AAAA", "whsec_", "no base64!"] {
        assert_eq!(new(Provider::Standard, &[secret]), Err(VerifierError::BadSecret), "{secret}");
    }
}

#[test]
fn no_secret_is_shown() {
    let shown = format!("{:?}", verifier(Provider::Github, &["hunter2"]));
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(!shown.contains("104, 117"), "{shown}");
}

#[test]
fn the_key_of_an_unsigned_id_is_the_body() {
    let source = [Provider::Github.key_from()];
    let find = |lines: &[(&str, &str)], body: &[u8]| {
        key::find(&source, &head(lines), Some(body), None, &KeyRules::default()).unwrap()
    };
    let first = find(&[("x-github-delivery", "1"), ("content-type", "application/json")], b"{}");
    assert_eq!(first, find(&[("x-github-delivery", "2"), ("content-type", "text/plain")], b"{}"));
    assert_ne!(first, find(&[("x-github-delivery", "1")], b"{\"a\":1}"));
}

#[test]
fn gitlab_shows_its_secret() {
    let verifier = verifier(Provider::Gitlab, &["old", "new"]);
    let verify = |token: &str| verifier.verify(&head(&[("x-gitlab-token", token)]), b"", at(0));
    assert_eq!((verify("old"), verify("new")), (Ok(()), Ok(())));
    for wrong in ["", "ne", "newer", "NEW"] {
        assert_eq!(verify(wrong), Err(Unverified::Signature), "{wrong}");
    }
    let none = verifier.verify(&head(&[]), b"", at(0));
    assert_eq!(none, Err(Unverified::Header("x-gitlab-token")));
}

fn call(target: &str, signature: &str) -> Parts {
    let request = Request::post(target).header("x-twilio-signature", signature);
    request.body(()).unwrap().into_parts().0
}

// The example of Twilio's documentation.
#[test]
fn the_example_of_twilio_is_genuine() {
    let verifier = Verifier::twilio("https://mycompany.com", ["12345"]).unwrap();
    let signature = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";
    let verify = |target: &str, body: &str| {
        verifier.verify(&call(target, signature), body.as_bytes(), at(0))
    };
    let (target, body) = (
        "/myapp.php?foo=1&bar=2",
        "Digits=1234&To=%2B18005551212&From=%2B14158675309&Caller=%2B14158675309&CallSid=CA1234567890ABCDE",
    );
    assert_eq!(verify(target, body), Ok(()));
    assert_eq!(verify(target, &format!("{body}&Digits=1234")), Ok(()));
    assert_eq!(verify("/myapp.php?foo=1", body), Err(Unverified::Signature));
    assert_eq!(verify(target, &body.replace("1234&", "1235&")), Err(Unverified::Signature));
    let elsewhere = Verifier::twilio("https://elsewhere.example", ["12345"]).unwrap();
    let verified = elsewhere.verify(&call(target, signature), body.as_bytes(), at(0));
    assert_eq!(verified, Err(Unverified::Signature));
}

#[test]
fn a_twilio_body_that_is_no_form_is_signed_by_its_digest() {
    let verifier = Verifier::twilio("https://mycompany.com/", ["12345"]).unwrap();
    let target =
        "/myapp.php?bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620";
    let verify = |target: &str, body: &str| {
        verifier.verify(&call(target, "y77kIzt2vzLz71DgmJGsen2scGs="), body.as_bytes(), at(0))
    };
    let body = r#"{"property": "value", "boolean": true}"#;
    assert_eq!(verify(target, body), Ok(()));
    assert_eq!(verify(target, "{}"), Err(Unverified::Signature));
    assert_eq!(verify("/myapp.php", body), Err(Unverified::Signature));
    assert_eq!(verify(&target.replace("0a1ff763", "00000000"), body), Err(Unverified::Signature));
}

#[test]
fn twilio_needs_the_url_that_it_calls() {
    let twilio = |url| Verifier::twilio(url, ["12345"]).map(|_| ());
    assert_eq!(twilio("http://127.0.0.1:8080"), Ok(()));
    for url in ["", "mycompany.com", "https://mycompany.com/hooks", "ftp://mycompany.com", "/hooks"]
    {
        assert_eq!(twilio(url), Err(VerifierError::BadUrl), "{url}");
    }
    let without = Verifier::new(Provider::Twilio, ["12345"]).map(|_| ());
    assert_eq!(without, Err(VerifierError::NoUrl));
}

#[test]
fn shopify_signs_the_body_in_base64() {
    let verifier = verifier(Provider::Shopify, &["hush"]);
    let head = head(&[("x-shopify-hmac-sha256", "VnKUjZsLuN5iZWjn5EntcBVCF9kMN43LglzCE1/GSeY=")]);
    assert_eq!(verifier.verify(&head, br#"{"id":1}"#, at(0)), Ok(()));
    assert_eq!(verifier.verify(&head, br#"{"id":2}"#, at(0)), Err(Unverified::Signature));
}

#[test]
fn linear_signs_the_body_with_its_timestamp() {
    let verifier = verifier(Provider::Linear, &["lin_wh"]);
    let verify = |signature: &str, body: &str, now| {
        verifier.verify(&head(&[("linear-signature", signature)]), body.as_bytes(), at(now))
    };
    let mac = "5f1927e5c7db666b8abb6afa001caddc48e8f24c324a875067df83820d51e7d0";
    let body = r#"{"action":"create","webhookTimestamp":1700000000123}"#;
    assert_eq!(verify(mac, body, 1_700_000_000), Ok(()));
    assert_eq!(verify(mac, body, 1_700_000_301), Err(Unverified::Untimely));
    assert_eq!(verify(mac, body, 1_699_999_700), Err(Unverified::Untimely));
    assert_eq!(
        verify(mac, &body.replace("123}", "124}"), 1_700_000_000),
        Err(Unverified::Signature)
    );
    let untimed = verify(
        "30dc8d5b4cbd7cbc2c59638a45d58037e1f2bba880fae10f3c282c137b78cab4",
        r#"{"action":"create"}"#,
        0,
    );
    assert_eq!(untimed, Err(Unverified::Body("webhookTimestamp")));
}

#[test]
fn cloud_events_have_nothing_to_verify() {
    let verifier = Verifier::new(Provider::CloudEvents, [""; 0]).unwrap();
    assert_eq!(verifier.verify(&head(&[]), b"", at(0)), Ok(()));
    let with_secret = Verifier::new(Provider::CloudEvents, ["secret"]).map(|_| ());
    assert_eq!(with_secret, Err(VerifierError::Unsigned));
}

#[test]
fn the_time_of_a_delivery_does_not_make_another_key() {
    let source = [Provider::Linear.key_from()];
    let find = |body: &str| {
        key::find(&source, &head(&[]), Some(body.as_bytes()), None, &KeyRules::default()).unwrap()
    };
    let first = find(r#"{"a":1,"webhookTimestamp":1}"#);
    assert_eq!(first, find(r#"{"a":1,"webhookTimestamp":2}"#));
    assert_ne!(first, find(r#"{"a":2,"webhookTimestamp":1}"#));
}

// R144
#[test]
fn the_key_of_a_cloud_event_is_its_source_and_its_id() {
    let source = [Provider::CloudEvents.key_from()];
    let find = |lines: &[(&str, &str)], body: &str| {
        key::find(&source, &head(lines), Some(body.as_bytes()), None, &KeyRules::default())
    };
    let binary = |source, id| find(&[("ce-source", source), ("ce-id", id)], "").unwrap().unwrap();
    let structured = |body: &str| find(&[("content-type", "application/cloudevents+json")], body);
    let first = binary("/a", "1");
    assert_eq!(first, structured(r#"{"source":"/a","id":"1"}"#).unwrap().unwrap());
    assert_ne!(first, binary("/b", "1"));
    assert_ne!(binary("/a", "b1"), binary("/ab", "1"));
    assert_eq!(find(&[("ce-id", "1")], "").unwrap(), None);
    assert!(find(&[("ce-source", "/a"), ("ce-id", "1"), ("ce-id", "1")], "").is_err());
    assert!(structured(r#"{"source":"/a","id":""}"#).is_err());
    assert_eq!(structured(r#"[{"source":"/a","id":"1"}]"#).unwrap(), None, "a batch has no key");
}
