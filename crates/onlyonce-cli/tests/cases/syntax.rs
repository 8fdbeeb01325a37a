//! 1. Key syntax.

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, I, Profile, S, Set};
use crate::subject::{Kind, Subject};
use crate::{B1, K1, K2, on_both};

on_both! {
    syn_01, syn_02, syn_03, syn_06, syn_09, syn_10, syn_11, syn_13, syn_14, syn_15, syn_17, syn_18,
    syn_19, syn_21, syn_22, syn_23, syn_25, syn_26, syn_27, syn_29, syn_30, syn_31, syn_33, syn_34,
    syn_35, syn_37, syn_38, constants_are_refused_where_the_route_denies_them,
}

/// The two spellings are one key: the second request is a replay of the first.
async fn is_one_key(on: Kind, profile: Profile<'_>, one: &str, other: &str) {
    let t = on.start(profile).await;
    let first = t.post(one, B1).await.fresh(201);
    t.post(other, B1).await.replays(&first);
    assert_eq!(t.n(), 1, "{one} and {other}");
}

/// The two spellings are two keys.
async fn are_two_keys(on: Kind, profile: Profile<'_>, one: &str, other: &str) {
    let t = on.start(profile).await;
    t.post(one, B1).await.fresh(201);
    t.post(other, B1).await.fresh(201);
    assert_eq!(t.n(), 2, "{one} and {other}");
}

/// No such value is a key.
async fn are_no_keys<K: AsRef<[u8]>>(
    on: Kind,
    profile: Profile<'_>,
    values: impl IntoIterator<Item = K>,
) {
    let t = on.start(profile).await;
    for value in values {
        let answer = t.send(&Ask::post(B1).key(&value)).await;
        let value = String::from_utf8_lossy(value.as_ref());
        assert_eq!(answer.status, 400, "{value:?}");
        assert_is_invalid(profile, &answer);
    }
    assert_eq!(t.u.total(), 0);
}

/// PJ(idempotency_key_invalid), or what it is in Stripe's shape.
fn assert_is_invalid(profile: Profile<'_>, answer: &Answer) {
    if profile.contains(&Set::Stripe) {
        answer.stripe(400, "invalid_request_error");
    } else {
        let problem = answer.problem(400, "idempotency_key_invalid");
        assert_eq!(problem["retry"], "new-key");
    }
}

fn quoted(key: &str) -> String {
    format!("\"{key}\"")
}

async fn syn_01(on: Kind) {
    for profile in [D, I] {
        is_one_key(on, profile, &quoted(K1), &quoted(K1)).await;
    }
    is_one_key(on, D, &quoted(K1), K1).await;
    is_one_key(on, D, K1, &quoted(K1)).await;
}

async fn syn_02(on: Kind) {
    for profile in [D, S] {
        is_one_key(on, profile, K1, K1).await;
    }
    are_two_keys(on, D, K1, K2).await;
    are_two_keys(on, D, K1, &K1.to_uppercase()).await;
}

async fn syn_03(on: Kind) {
    // A token, a number, a boolean, bytes, a date, a display string, a list: all valid fields, and no strings.
    let others = [K1, "abc", "123", "?1", ":YWJj:", "@1659578233", "%\"abc\"", "(\"abc\")"];
    are_no_keys(on, I, others).await;
}

async fn syn_06(on: Kind) {
    for profile in [D, I] {
        for parameters in [";v=1", ";v", "; v=\"x;y\"", ";a=?0;b=:AA==:;c=tok"] {
            let with = quoted(K1) + parameters;
            is_one_key(on, profile, &with, &quoted(K1)).await;
        }
        let bad = [";", ";V=1", ";v=", ";v=\"x", " ;v=1", ";v=1,", "x"];
        are_no_keys(on, profile, bad.map(|bad| quoted(K1) + bad)).await;
    }
}

async fn syn_09(on: Kind) {
    for profile in [D, I] {
        are_no_keys(on, profile, ["", "  ", "\t"]).await;
        are_no_keys(on, &[profile, &[Set::Required]].concat(), [""]).await;
    }
}

async fn syn_10(on: Kind) {
    for profile in [D, I] {
        are_no_keys(on, profile, ["\"\"", "\"\";v=1"]).await;
    }
}

async fn syn_11(on: Kind) {
    for profile in [D, I] {
        are_no_keys(on, profile, ["\"   \"", "\" \""]).await;
    }
}

async fn syn_13(on: Kind) {
    for profile in [D, I, S] {
        let t = on.start(profile).await;
        for second in [K1, K2, ""] {
            let doubled = Ask::post(B1).key(quoted(K1)).key(quoted(second));
            assert_is_invalid(profile, &t.send(&doubled).await);
        }
        assert_eq!(t.u.total(), 0);
    }
}

async fn syn_14(on: Kind) {
    for profile in [D, I] {
        let lists = [
            r#""a12345678901234", "b12345678901234""#,
            r#""a12345678901234","a12345678901234""#,
            r#""a12345678901234","#,
            r#"a12345678901234, "b12345678901234""#,
        ];
        are_no_keys(on, profile, lists).await;
    }
}

async fn syn_15(on: Kind) {
    are_no_keys(on, D, ["abc,def", "abc, def", ",", "abc;v=1", "ab\"c", "ab\\c", "\"abc", "ab cd"])
        .await;
}

async fn syn_17(on: Kind) {
    let key = "k".repeat(255);
    for profile in [D, S] {
        is_one_key(on, profile, &key, &key).await;
    }
    is_one_key(on, I, &quoted(&key), &quoted(&key)).await;
}

async fn syn_18(on: Kind) {
    for profile in [D, S] {
        are_no_keys(on, profile, ["k".repeat(256), "k".repeat(4000), quoted(&"k".repeat(256))])
            .await;
    }
}

async fn syn_19(on: Kind) {
    for profile in [D, I] {
        let escaped = "\\\"".repeat(10);
        let fits = quoted(&format!("{}{escaped}", "k".repeat(245)));
        assert_eq!(fits.len(), 267);
        is_one_key(on, profile, &fits, &fits).await;
        are_no_keys(on, profile, [quoted(&format!("{}{escaped}", "k".repeat(246)))]).await;
    }
}

async fn syn_21(on: Kind) {
    for profile in [D, I, S] {
        let values: [&[u8]; 4] = [
            "\"füü-1234567890123\"".as_bytes(),
            "füü-1234567890123".as_bytes(),
            b"\"k\xff\"",
            b"\x80",
        ];
        are_no_keys(on, profile, values).await;
    }
}

async fn syn_22(on: Kind) {
    for profile in [D, I, S] {
        are_no_keys(on, profile, ["\"tab\tinside-the-key\"", "tab\tinside-the-key"]).await;
    }
}

async fn syn_23(on: Kind) {
    for profile in [D, I, S] {
        let t = on.start(profile).await;
        // NUL, a bare CR, a bare LF, other controls, and a line that is folded as it once was allowed.
        let values: [&[u8]; 7] = [
            b"\"abc\0def\"",
            b"\"abc\rdef\"",
            b"\"abc\ndef\"",
            b"\"abc\x01def\"",
            b"\"abc\x7fdef\"",
            b"\"abc\r\n def\"",
            b"\0",
        ];
        for value in values {
            let answer = t.send(&Ask::post(B1).key(value)).await;
            assert_eq!(answer.status, 400, "{value:?}");
        }
        assert_eq!(t.u.total(), 0);
        t.post(&quoted(K1), B1).await.fresh(201);
    }
}

async fn syn_25(on: Kind) {
    for key in ["'single-quoted-key'", "a=b:c/d+e~f!", "{curly}", "123", "?1"] {
        is_one_key(on, D, key, key).await;
        is_one_key(on, D, key, &quoted(key)).await;
    }
    are_no_keys(on, I, ["'single-quoted-key'"]).await;
}

async fn syn_26(on: Kind) {
    for profile in [D, I] {
        are_no_keys(on, profile, [r#""bad \, escape""#, r#""bad \n""#, r#""bad \""#, r#""a"b""#])
            .await;
    }
}

async fn syn_27(on: Kind) {
    for profile in [D, I] {
        let key = r#""foo \"bar\" \\ baz""#;
        is_one_key(on, profile, key, key).await;
        are_two_keys(on, profile, key, r#""foo \"bar\" \\\\ baz""#).await;
    }
}

async fn syn_29(on: Kind) {
    for profile in [D, I, S] {
        let t = on.start(profile).await;
        let named = |name| Ask::post(B1).header(name, quoted(K1));
        let first = t.send(&named("idempotency-key")).await.fresh(201);
        for name in ["IDEMPOTENCY-KEY", "iDEMPOTENCY-kEY"] {
            t.send(&named(name)).await.replays(&first);
        }
        t.send_http2(&named("idempotency-key")).await.replays(&first);
        assert_eq!(t.n(), 1);
    }
}

async fn syn_30(on: Kind) {
    for profile in [D, I] {
        let key = quoted(K1);
        for around in [format!("  {key} \t"), format!("\t{key}"), format!("{key} ")] {
            is_one_key(on, profile, &around, &key).await;
        }
    }
}

async fn syn_31(on: Kind) {
    for profile in [D, I] {
        are_two_keys(on, profile, &format!("\" {K1}\""), &quoted(K1)).await;
        are_two_keys(on, profile, &format!("\"{K1} \""), &quoted(K1)).await;
    }
}

async fn syn_33(on: Kind) {
    let profile = &[Set::KeyUuid];
    let t = on.start(profile).await;
    let answer = t.post("\"clkyoesmbgybucifusbbtdsbohtyuuwz\"", B1).await;
    let problem = answer.problem(400, "idempotency_key_invalid");
    let detail = problem["detail"].as_str().unwrap().to_lowercase();
    assert!(detail.contains("uuid"), "{detail}");
    assert_eq!(t.n(), 0);
    is_one_key(on, profile, &quoted(K1), K1).await;
    let near = [&K1[1..], &K1.replace('-', ""), &format!("{{{K1}}}"), &K1.replace('8', "g")];
    are_no_keys(on, profile, near).await;
}

async fn syn_34(on: Kind) {
    let profile = &[Set::KeyLength(16, 32)];
    are_no_keys(on, profile, ["\"abcd\"", "abcd"]).await;
    are_no_keys(on, profile, ["k".repeat(15), "k".repeat(33), quoted(&"k".repeat(15))]).await;
    is_one_key(on, profile, &"k".repeat(16), &quoted(&"k".repeat(16))).await;
    is_one_key(on, profile, &"k".repeat(32), &"k".repeat(32)).await;
}

// R14
async fn constants_are_refused_where_the_route_denies_them(on: Kind) {
    let profile = &[Set::KeyDeny(&["null", "undefined", "test", ZERO])];
    are_no_keys(on, profile, ["null", "NULL", "\"undefined\"", "Test", ZERO]).await;
    is_one_key(on, profile, "test-1", "test-1").await;
    is_one_key(on, D, "null", "null").await;
}

const ZERO: &str = "00000000-0000-0000-0000-000000000000";

// R181
async fn syn_35(on: Kind) {
    let t = on.start(D).await;
    let kept = t.post(K1, B1).await.fresh(201);
    let injection = "'; DROP TABLE x;--";
    assert_is_invalid(D, &t.post(injection, B1).await);
    assert_eq!(t.n(), 1);
    let first = t.post(&quoted(injection), B1).await.fresh(201);
    t.post(&quoted(injection), B1).await.replays(&first);
    t.post(K1, B1).await.replays(&kept);
    assert_eq!(t.n(), 2);
}

/// A body that has its key inside.
fn referring(to: &str) -> Ask {
    Ask::post(format!(r#"{{"transfer":{{"client_reference":{to},"amount":1}}}}"#))
}

const IN_BODY: &[&str] = &["json:/transfer/client_reference"];
const IN_BOTH: &[&str] = &["json:/transfer/client_reference", "header:Idempotency-Key"];

async fn syn_37(on: Kind) {
    let t = on.start(&[Set::KeyFrom(IN_BODY)]).await;
    let first = t.send(&referring("\"po-1\"")).await.fresh(201);
    t.send(&referring("\"po-1\"")).await.replays(&first);
    assert_eq!(t.n(), 1);
    t.send(&referring("\"po-2\"")).await.fresh(201);
    // A number counts as its text; anything else is no key.
    t.send(&referring("17")).await.fresh(201);
    assert_eq!(t.n(), 3);
    t.send(&referring("\"17\"")).await.problem(422, "idempotency_key_reused");
    for other in ["true", "[1]", "{}", "\"\""] {
        assert_is_invalid(D, &t.send(&referring(other)).await);
    }
    assert_eq!(t.n(), 3);
    unkeyed_runs_each_time(&t).await;
}

async fn unkeyed_runs_each_time(t: &Subject) {
    let before = t.n();
    for _ in 0..2 {
        t.send(&Ask::post("{\"transfer\":{}}")).await.fresh(201);
    }
    assert_eq!(t.n(), before + 2);
}

async fn syn_38(on: Kind) {
    let t = on.start(&[Set::KeyFrom(IN_BOTH)]).await;
    let both = |header: &str, body: &str| referring(&quoted(body)).key(header);
    assert_is_invalid(D, &t.send(&both(K1, K2)).await);
    assert_eq!(t.n(), 0);
    let first = t.send(&both(K1, K1)).await.fresh(201);
    t.send(&referring(&quoted(K1))).await.replays(&first);
    assert_eq!(t.n(), 1);
    unkeyed_runs_each_time(&t).await;
}
