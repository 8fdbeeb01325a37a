//! What scopes must keep apart, and what they must not.

use proptest::prelude::*;

use std::sync::LazyLock;

use super::*;
use crate::key::KeyRules;

static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

// R24, R25, R29, R30, R31, R182, threat G9: every part of the default scope separates (SCP-10, SCP-14, SCP-15).
#[test]
fn one_key_is_another_operation_in_another_scope() {
    let (ann, bob) = (Principal::of("user", b"ann"), Principal::of("user", b"bob"));
    let here = Scope {
        principal: &ann,
        host: "api.test",
        method: "POST",
        path: "/t/1",
        headers: &NONE,
        body: b"",
    };
    let others = [
        Scope { principal: &bob, ..here },
        Scope { host: "api2.test", ..here },
        Scope { method: "PATCH", ..here },
        Scope { path: "/t/2", ..here },
        Scope { path: "/t/1/1", ..here },
    ];
    for other in others {
        assert_ne!(id_in(&here), id_in(&other), "{other:?}");
    }
}

// R25: SCP-13
#[test]
fn a_part_that_the_policy_leaves_out_does_not_separate() {
    let ann = Principal::of("user", b"ann");
    let here = Scope {
        principal: &ann,
        host: "api.test",
        method: "POST",
        path: "/a",
        headers: &NONE,
        body: b"",
    };
    let there = Scope { method: "PATCH", path: "/b", ..here };
    let parts = [ScopePart::Principal, ScopePart::Host];
    assert_eq!(
        operation_id(None, &parts, &here, &key("k")),
        operation_id(None, &parts, &there, &key("k"))
    );
}

#[test]
fn the_order_of_the_parts_means_nothing() {
    let ann = Principal::of("user", b"ann");
    let here = Scope {
        principal: &ann,
        host: "api.test",
        method: "POST",
        path: "/a",
        headers: &NONE,
        body: b"",
    };
    let mut reversed = ScopePart::DEFAULT.to_vec();
    reversed.reverse();
    reversed.push(ScopePart::Host);
    assert_eq!(operation_id(None, &reversed, &here, &key("order-17")), id_in(&here));
}

// R34: SCP-21. threat G12
#[test]
fn spellings_of_one_host_and_path_are_one_scope() {
    let ann = Principal::of("user", b"ann");
    let here = Scope {
        principal: &ann,
        host: "api.test",
        method: "POST",
        path: "/tA",
        headers: &NONE,
        body: b"",
    };
    for path in ["/t%41", "/ta", "/tA/", "//tA", "/tA;a=b", "/tA.json"] {
        let same = Scope { host: "API.Test:8080", path, ..here };
        assert_eq!(id_in(&here), id_in(&same), "{path}");
    }
}

// threat G12
#[test]
fn a_literal_path_counts_as_it_is_spelled() {
    let ann = Principal::of("user", b"ann");
    let (host, method, headers, body) = ("api.test", "POST", &*NONE, &b""[..]);
    let id = |part: ScopePart, path: &str| {
        let scope = Scope { principal: &ann, host, method, path, headers, body };
        operation_id(None, &[part], &scope, &key("k"))
    };
    let literal = |path: &str| id(ScopePart::LiteralPath, path);
    assert_eq!(literal("/t%41"), literal("/tA"));
    for path in ["/ta", "/tA/", "//tA", "/tA;a=b", "/tA.json"] {
        assert_ne!(literal(path), literal("/tA"), "{path}");
    }
    assert_ne!(literal("/ta"), id(ScopePart::Path, "/ta"));
}

// threat G12
#[test]
fn a_host_loses_its_port_and_its_case_only() {
    let cases = [
        ("Example.COM", "example.com"),
        ("example.com:443", "example.com"),
        ("example.com:", "example.com"),
        ("[::1]:8080", "[::1]"),
        ("[::1]", "[::1]"),
        ("::1", "::1"),
        ("a:b", "a:b"),
        ("", ""),
    ];
    for (sent, plain) in cases {
        assert_eq!(encoding::plain_host(sent), plain, "{sent}");
    }
}

#[test]
fn a_secret_changes_every_id() {
    let ann = Principal::of("user", b"ann");
    let (one, two) = (Secret::new("one"), Secret::new("two"));
    let [open, first, second] = [None, Some(&one), Some(&two)]
        .map(|secret| operation_id_of(secret, "jobs", &ann, &key("k")));
    assert!(open != first && first != second && open != second);
    assert_eq!(first, operation_id_of(Some(&Secret::new("one")), "jobs", &ann, &key("k")));
}

// R10
#[test]
fn keys_that_differ_in_case_are_two_operations() {
    let ann = Principal::of("user", b"ann");
    assert_ne!(
        operation_id_of(None, "jobs", &ann, &key("k")),
        operation_id_of(None, "jobs", &ann, &key("K"))
    );
}

// Computed by another program. A change here makes every live key a fresh one: raise SCOPE_VERSION, and say so in the changelog.
#[test]
fn ids_stay_what_they_are_for_this_version() {
    let ann = Principal::of("user", b"ann");
    let here = Scope {
        principal: &ann,
        host: "api.test",
        method: "POST",
        path: "/charges",
        headers: &NONE,
        body: b"",
    };
    assert_eq!(id_in(&here).to_string(), "45906377dfd555a5306712d4c7c0e9c2");
    let keyed = operation_id_of(Some(&Secret::new("s")), "jobs", &ann, &key("k"));
    assert_eq!(keyed.to_string(), "e2c23aeed4bec70e124b9ca05a4d19ad");
}

#[test]
fn the_ids_of_one_key_begin_alike_and_differ_in_the_rest() {
    let (ann, bob) = (Principal::of("user", b"ann"), Principal::of("user", b"bob"));
    let secret = Secret::new("s");
    for secret in [None, Some(&secret)] {
        let [first, second] =
            [&ann, &bob].map(|who| operation_id_of(secret, "jobs", who, &key("k")));
        let prefix = IdPrefix::of_key(secret, "k");
        assert_eq!((first.prefix(), second.prefix()), (prefix, prefix));
        assert_ne!(first, second);
        assert!(prefix.first_id() <= first && prefix.first_id().prefix() == prefix);
        assert_ne!(operation_id_of(secret, "jobs", &ann, &key("l")).prefix(), prefix);
    }
    assert_ne!(IdPrefix::of_key(None, "k"), IdPrefix::of_key(Some(&secret), "k"));
}

#[test]
fn an_id_is_read_back_from_its_text_and_from_nothing_else() {
    let id = OperationId::from_bytes([0xab; 16]);
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!(format!("{id:?}"), format!("OperationId({id})"));
    assert_eq!("ab".parse::<OperationId>(), Err(OperationIdError));
}

// R25, threat G9
#[test]
fn a_header_separates_by_all_of_its_values_and_absent_is_not_empty() {
    let parts = |names: &[&str]| -> Vec<ScopePart> {
        names.iter().map(|name| ScopePart::Header(name.parse().unwrap())).collect()
    };
    let ann = Principal::of("user", b"ann");
    let id = |names: &[&str], lines: &[(&'static str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let scope = Scope {
            principal: &ann,
            host: "h",
            method: "POST",
            path: "/",
            headers: &headers,
            body: b"",
        };
        operation_id(None, &parts(names), &scope, &key("k"))
    };
    let tenant = ["x-tenant"];
    let apart = [
        id(&[], &[]),
        id(&tenant, &[]),
        id(&tenant, &[("x-tenant", "")]),
        id(&tenant, &[("x-tenant", "a")]),
        id(&tenant, &[("x-tenant", "A")]),
        id(&tenant, &[("x-tenant", "a"), ("x-tenant", "b")]),
        id(&tenant, &[("x-tenant", "b"), ("x-tenant", "a")]),
        id(&tenant, &[("x-tenant", "a, b")]),
        id(&["x-tenant", "x-url"], &[("x-tenant", "a")]),
        id(&["x-tenant", "x-url"], &[("x-url", "a")]),
        id(&["x-url"], &[("x-url", "a")]),
    ];
    for (at, one) in apart.iter().enumerate() {
        assert!(!apart[at + 1..].contains(one), "{at}");
    }
    let both = [("x-tenant", "a"), ("x-url", "u"), ("x-other", "o")];
    assert_eq!(
        id(&["x-tenant", "x-url"], &both),
        id(&["X-Url", "X-Tenant", "x-url"], &both[..2]),
        "neither order nor repeats nor other headers count"
    );
}

type Tuple = (u8, u8, String, String, String, String);

// Few letters and all the separators, so that tuples that only differ in where a part ends are common.
fn tuple() -> impl Strategy<Value = Tuple> {
    let text = || "[ab/\0\u{1}]{0,3}";
    (0u8..16, 0u8..3, text(), text(), text(), "[ab]{1,3}")
}

fn parts_of(mask: u8) -> Vec<ScopePart> {
    (0..4).filter(|bit| mask & (1 << bit) != 0).map(|bit| ScopePart::DEFAULT[bit].clone()).collect()
}

fn encoded((mask, who, host, method, path, text): &Tuple) -> Vec<u8> {
    let principal = Principal::of("user", &[*who]);
    let scope = Scope { principal: &principal, host, method, path, headers: &NONE, body: b"" };
    encoding::of_request(&parts_of(*mask), &scope, &key(text))
}

/// What of a tuple the policy lets count.
fn counted((mask, who, host, method, path, text): &Tuple) -> impl PartialEq + use<> {
    let mask = *mask;
    let part = move |bit: u8, text: &str| (mask & (1 << bit) != 0).then(|| text.to_owned());
    let path = folded_path(path);
    (part(0, &who.to_string()), part(1, host), part(2, method), part(3, &path), text.clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    // R24, R31, threats G9 and Q20
    #[test]
    fn encodings_are_equal_exactly_when_the_scopes_are(one in tuple(), two in tuple()) {
        prop_assert_eq!(encoded(&one) == encoded(&two), counted(&one) == counted(&two));
    }

    // R24, threats G9 and Q20
    #[test]
    fn a_namespace_never_meets_another_or_a_request(
        one in "[ab\0]{0,3}", two in "[ab\0]{0,3}", request in tuple(), text in "[ab]{1,3}",
    ) {
        let ann = Principal::of("user", b"ann");
        let first = encoding::of_namespace(&one, &ann, &key(&text));
        prop_assert_eq!(first == encoding::of_namespace(&two, &ann, &key(&text)), one == two);
        prop_assert_ne!(first, encoded(&request));
    }
}

fn id_in(scope: &Scope<'_>) -> OperationId {
    operation_id(None, &ScopePart::DEFAULT, scope, &key("order-17"))
}

fn key(text: &str) -> Key {
    Key::from_text(text, &KeyRules::default()).unwrap()
}

// R25
#[test]
fn a_value_of_the_body_separates_where_the_policy_points_to_it() {
    let ann = Principal::of("user", b"ann");
    let part = |text: &str| ScopePart::Json(text.parse().unwrap());
    let id = |parts: &[ScopePart], body: &str| {
        let body = body.as_bytes();
        let scope =
            Scope { principal: &ann, host: "h", method: "POST", path: "/", headers: &NONE, body };
        operation_id(None, parts, &scope, &key("k"))
    };
    let (name, tenant) = (part("/operationName"), part("/tenant"));
    let both = [name.clone(), tenant.clone()];
    let apart = [
        id(&[], "{}"),
        id(&both[..1], "{}"),
        id(&both[1..], "{}"),
        id(&both[..1], r#"{"operationName":""}"#),
        id(&both[..1], r#"{"operationName":"pay"}"#),
        id(&both[..1], r#"{"operationName":"refund"}"#),
        id(&both, r#"{"operationName":"pay"}"#),
        id(&both, r#"{"tenant":"pay"}"#),
    ];
    for (at, one) in apart.iter().enumerate() {
        assert!(!apart[at + 1..].contains(one), "{at}");
    }
    let absent = id(&both[..1], "{}");
    for body in [r#"{"operationName":null}"#, r#"{"operationName":["pay"]}"#, "", "pay", "{"] {
        assert_eq!(id(&both[..1], body), absent, "{body}");
    }
    let whole = r#"{"tenant":7,"operationName":"p\u0061y","variables":{}}"#;
    let again = r#"{"operationName":"pay","tenant":7}"#;
    assert_eq!(id(&both, whole), id(&[tenant, name.clone(), name], again));
}
