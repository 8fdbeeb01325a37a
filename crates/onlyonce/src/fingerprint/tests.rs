//! Requests that are the same, and those that are not.

use super::*;

const JSON: Sent<'static> = Sent {
    method: "POST",
    path: "/t",
    query: None,
    content_type: Some(b"application/json"),
    content_encoding: None,
    other: None,
    body: br#"{"amount":7998,"currency":"usd"}"#,
};

/// A request in short.
#[derive(Clone, Copy, Debug)]
struct Sent<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    content_type: Option<&'a [u8]>,
    content_encoding: Option<&'a [u8]>,
    other: Option<(&'static str, &'static str)>,
    body: &'a [u8],
}

impl Sent<'_> {
    fn with<T>(&self, make: impl FnOnce(&Subject<'_>) -> T) -> T {
        let Sent { method, path, query, body, .. } = *self;
        let mut headers = HeaderMap::new();
        let own =
            [("content-type", self.content_type), ("content-encoding", self.content_encoding)];
        let other = self.other.map(|(name, value)| (name, Some(value.as_bytes())));
        for (name, value) in own.into_iter().chain(other) {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_bytes(value).unwrap());
            }
        }
        make(&Subject { method, path, query, headers: &headers, body })
    }
}

fn of(rules: &FingerprintRules, sent: &Sent<'_>) -> Fingerprint {
    sent.with(|subject| Fingerprint::of(rules, subject))
}

// R34: FPR-01, FPR-17, SCP-22
#[test]
fn every_part_of_a_request_counts() {
    let others = [
        Sent { method: "PATCH", ..JSON },
        Sent { path: "/t/", ..JSON },
        Sent { query: Some("a=1&b=2"), ..JSON },
        Sent { query: Some("b=2&a=1"), ..JSON },
        Sent { content_type: Some(b"text/plain"), ..JSON },
        Sent { content_type: Some(b"application/vnd.x+json"), ..JSON },
        Sent { content_type: None, ..JSON },
        Sent { content_encoding: Some(b"gzip"), ..JSON },
        Sent { content_type: Some(b"application/json; charset=utf-16"), ..JSON },
        Sent { content_type: Some(b"multipart/mixed; boundary=a"), ..JSON },
        Sent { content_type: Some(b"multipart/mixed; boundary=b"), ..JSON },
        Sent { other: Some(("x-http-method-override", "PUT")), ..JSON },
        Sent { other: Some(("x-http-method-override", "DELETE")), ..JSON },
        Sent { other: Some(("x-http-method-override", "")), ..JSON },
        Sent { other: Some(("x-http-method", "PUT")), ..JSON },
        Sent { other: Some(("x-method-override", "PUT")), ..JSON },
        Sent { body: br#"{"amount":9999,"currency":"usd"}"#, ..JSON },
        Sent { body: b"", ..JSON },
    ];
    for rules in [auto(), raw()] {
        let prints = [JSON].iter().chain(&others).map(|sent| of(&rules, sent)).collect::<Vec<_>>();
        for (at, one) in prints.iter().enumerate() {
            assert!(prints[at + 1..].iter().all(|two| !one.matches(two)), "{at}");
        }
    }
}

// R34, R37, R42: FPR-05, FPR-18, SCP-21, SCP-25. threat G12
#[test]
fn spellings_of_one_request_match() {
    let same = [
        Sent { path: "/%74", ..JSON },
        Sent { query: Some(""), ..JSON },
        Sent { content_type: Some(b"Application/JSON; charset=utf-8"), ..JSON },
        Sent { content_encoding: Some(b"identity"), ..JSON },
        Sent { other: Some(("x-original-url", "/admin")), ..JSON },
    ];
    for subject in same {
        assert!(matches(&auto(), &JSON, &subject), "{subject:?}");
        assert!(matches(&raw(), &JSON, &subject), "{subject:?}");
    }
    let pretty = Sent { body: b"{ \"currency\": \"usd\",\n \"amount\": 7998.00 }", ..JSON };
    assert!(matches(&auto(), &JSON, &pretty));
}

// R36: FPR-06
#[test]
fn raw_mode_compares_bytes() {
    let spaced = Sent { body: br#"{"amount": 7998,"currency":"usd"}"#, ..JSON };
    assert!(matches(&raw(), &JSON, &JSON));
    assert!(!matches(&raw(), &JSON, &spaced));
}

// R37, R38, R39, R40: FPR-07, FPR-09, FPR-10, FPR-11, FPR-13, FPR-14, FPR-15, FPR-19. threat G14
#[test]
fn json_is_compared_by_its_value() {
    let cases = [
        (r#"{"a":10}"#, r#"{"a":10.0}"#, true),
        (r#"{"a":10}"#, r#"{"a":1e1}"#, true),
        (r#"{"a":0.1}"#, r#"{"a":0.1000000000000000055511151231257827}"#, false),
        (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#, false),
        (r#"{"a":"\u0041"}"#, r#"{"a":"A"}"#, true),
        ("{\"a\":\"\u{e9}\"}", "{\"a\":\"e\u{301}\"}", false),
        ("[1,2]", "[2,1]", false),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, false),
        (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":2}"#, true),
        (r#"{"a":1,"a":2}"#, r#"{"a":1, "a":2}"#, false),
        (r#"{"a":null}"#, "{}", false),
        ("{oops", "{oops", true),
        ("{oops", "{oops ", false),
    ];
    for (one, two, is_same) in cases {
        let [one, two] = [one, two].map(|body| Sent { body: body.as_bytes(), ..JSON });
        assert_eq!(matches(&auto(), &one, &two), is_same, "{one:?} {two:?}");
    }
}

// R39, threat G14
#[test]
fn bytes_and_meaning_never_meet() {
    let meant = body::json::canonical(JSON.body, &[], &[]).unwrap();
    let spelled = Sent { body: &meant, ..JSON };
    assert!(!matches(&auto(), &JSON, &spelled), "the canonical bytes, sent as a body");
    let one = of(&auto(), &JSON);
    assert!(one.canonical != one.raw && of(&raw(), &JSON).canonical == one.raw);
    let odd = of(&auto(), &Sent { body: b"{", ..JSON });
    assert_ne!(odd.canonical, odd.raw);
}

// R41: FPR-27
#[test]
fn pointers_choose_what_counts_in_json_and_nowhere_else() {
    let rules = FingerprintRules { exclude: vec!["/ts".parse().unwrap()], ..auto() };
    let [one, two] =
        [br#"{"amount":1,"ts":1}"#, br#"{"amount":1,"ts":2}"#].map(|body| Sent { body, ..JSON });
    assert!(matches(&rules, &one, &two));
    assert!(!matches(&auto(), &one, &two));
    let [one, two] =
        [one, two].map(|subject| Sent { content_type: Some(b"text/plain"), ..subject });
    assert!(!matches(&rules, &one, &two));
}

// R43: FPR-23
#[test]
fn multipart_is_compared_by_parts() {
    let [one, two, broken] = ["a", "b", "c"].map(|boundary| {
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n--{boundary}--\r\n"
        );
        (format!("multipart/form-data; boundary={boundary}"), body)
    });
    let of = |content_type: &str, body: &str| {
        of(
            &auto(),
            &Sent { content_type: Some(content_type.as_bytes()), body: body.as_bytes(), ..JSON },
        )
    };
    assert!(of(&one.0, &one.1).matches(&of(&two.0, &two.1)));
    assert!(!of(&one.0, &one.1).matches(&of(&one.0, &broken.1)));
    assert!(of(&one.0, &broken.1).matches(&of(&one.0, &broken.1)));
}

// R44: FPR-25
#[test]
fn forms_are_compared_by_fields() {
    let form =
        |body| Sent { content_type: Some(b"application/x-www-form-urlencoded"), body, ..JSON };
    assert!(matches(
        &auto(),
        &form(b"amount=1000&currency=usd"),
        &form(b"currency=usd&amount=1000")
    ));
    assert!(!matches(&auto(), &form(b"a=1&a=2"), &form(b"a=2&a=1")));
    assert!(!matches(&auto(), &form(b"a=%"), &form(b"a=%25")));
}

// R34: FPR-34
#[test]
fn a_body_with_a_content_coding_is_compared_as_bytes() {
    let coded = Sent { content_encoding: Some(b"br"), ..JSON };
    let spaced = Sent { body: br#"{"amount":7998, "currency":"usd"}"#, ..coded };
    assert!(matches(&auto(), &coded, &coded));
    assert!(!matches(&auto(), &coded, &spaced));
}

// R46: FPR-29
#[test]
fn without_fingerprints_everything_matches() {
    let none = FingerprintRules { mode: FingerprintMode::None, ..auto() };
    let other = Sent { body: b"[]", ..JSON };
    assert!(matches(&none, &JSON, &other));
    let [stored, asked] = [of(&none, &JSON), of(&auto(), &other)];
    assert!(stored.matches(&asked) && asked.matches(&stored));
    assert_eq!(stored.version, Fingerprint::NONE);
    assert_ne!(
        stored.canonical,
        of(&none, &other).canonical,
        "a key made from it is not a constant"
    );
}

// R35
#[test]
fn another_version_is_compared_by_its_bytes() {
    let old = |subject| Fingerprint { version: 77, ..of(&auto(), subject) };
    let spaced = Sent { body: br#"{"amount": 7998,"currency":"usd"}"#, ..JSON };
    assert!(old(&JSON).matches(&of(&auto(), &JSON)));
    assert!(!old(&JSON).matches(&of(&auto(), &spaced)));
    assert!(!of(&auto(), &spaced).matches(&old(&JSON)));
}

// R34, R36, R47, threat G15
#[test]
fn all_bits_of_a_digest_are_compared() {
    let stored = of(&auto(), &JSON);
    for at in 0..32 {
        let mut asked = stored;
        asked.raw[0] ^= 1;
        asked.canonical[at] ^= 1;
        assert!(!stored.matches(&asked), "{at}");
        assert!(
            stored.matches(&Fingerprint { raw: stored.raw, ..asked }),
            "an equal raw digest is enough"
        );
        assert!(
            stored.matches(&Fingerprint { canonical: stored.canonical, ..asked }),
            "so is a canonical one"
        );
    }
}

// R36
#[test]
fn a_known_raw_digest_is_not_computed_again() {
    let whole = of(&auto(), &JSON);
    let again = JSON
        .with(|subject| Fingerprint::with_raw(Fingerprint::raw_digest(subject), &auto(), subject));
    assert_eq!((whole.raw, whole.canonical), (again.raw, again.canonical));
}

// R47
#[test]
fn debug_shows_nothing_of_the_request() {
    let secret = Sent { path: "/canary", query: Some("canary"), body: b"canary", ..JSON };
    let shown =
        secret.with(|subject| format!("{subject:?} {:?}", Fingerprint::of(&auto(), subject)));
    assert!(!shown.contains("canary"), "{shown}");
}

// R35. Computed by another program. The raw digest may never change; a change of the canonical one needs a new version.
#[test]
fn digests_stay_what_they_are_for_this_version() {
    let fingerprint = of(&auto(), &JSON);
    assert_eq!(
        crate::hex::encode(&fingerprint.raw),
        "6d8ed7d826837ef8c3802d56a02cfcdd7eefade412e2d1e203611b3d157bb9d9"
    );
    assert_eq!(
        crate::hex::encode(&fingerprint.canonical),
        "c4c9e068e845e5aef8b1bc37a033ecf3360aeb5bc56440d7f7ee80f4eefc7065"
    );
    let everything = Sent {
        query: Some("x=1"),
        content_type: Some(b"text/plain; Charset=Latin1; a=B"),
        content_encoding: Some(b"gzip"),
        other: Some(("x-http-method-override", "PUT")),
        ..JSON
    };
    let fingerprint = of(&auto(), &everything);
    assert_eq!(
        crate::hex::encode(&fingerprint.raw),
        "9d77c5d2167be4347edeb3ba47f2e442b48d84e2173416348942c1e8a034a2a6"
    );
    assert_eq!(
        crate::hex::encode(&fingerprint.canonical),
        "e6a0f9339245fb4466f3e6a1e4bc1f758203775d2961ad2ee2804773582d894b"
    );
}

fn auto() -> FingerprintRules {
    FingerprintRules::default()
}

fn raw() -> FingerprintRules {
    FingerprintRules { mode: FingerprintMode::Raw, ..auto() }
}

fn matches(rules: &FingerprintRules, one: &Sent<'_>, two: &Sent<'_>) -> bool {
    of(rules, one).matches(&of(rules, two))
}

// threat G12
#[cfg(feature = "tower")]
#[test]
fn another_spelling_is_told_from_another_request() {
    let secret = Secret::new("s");
    let none = FingerprintRules { mode: FingerprintMode::None, ..auto() };
    let other = Sent { body: br#"{"amount":1}"#, ..JSON };
    for (rules, secret) in
        [(auto(), None), (auto(), Some(&secret)), (none.clone(), None), (none, Some(&secret))]
    {
        // As a request has it: its own bytes, the folded path, and the spelling apart.
        let kept = |sent: &Sent<'_>, spelling: [u8; 4]| {
            let made = of(&rules, sent);
            let mut raw = made.raw;
            raw[0] ^= spelling[0];
            Fingerprint { raw, ..made }.kept(secret).spelled(spelling)
        };
        let (plain, one, two) = ([0; 4], [1, 2, 3, 5], [9, 2, 3, 7]);
        for (stored, asked) in [(plain, one), (one, plain), (one, two)] {
            let (stored, asked) = (kept(&JSON, stored), kept(&JSON, asked));
            assert!(!stored.matches(&asked) && stored.is_respelled(&asked), "{rules:?}");
        }
        let (stored, again) = (kept(&JSON, one), kept(&JSON, one));
        assert!(stored.matches(&again) && !stored.is_respelled(&again));
        let (stored, other) = (kept(&JSON, one), kept(&other, one));
        assert_eq!(stored.matches(&other), rules.mode == FingerprintMode::None);
        assert!(!stored.is_respelled(&other));
    }
}
