//! Credentials that are not what they seem: empty, doubled, shared by all users of an app.

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::subject::{Kind, Subject};
use crate::{B1, K1, on_gateway};

on_gateway! {
    an_empty_credential_is_none, an_empty_credential_is_refused_where_one_is_needed, a_doubled_credential_is_unclear,
    an_api_key_does_not_speak_for_a_cookie_or_a_signature, all_credentials_that_repeat_are_one_caller_together, a_cookie_is_read_among_bytes_that_are_not_ascii,
    the_look_up_judges_credentials_as_the_request_does,
}

const BY_NAME: &[Set] = &[Set::Toml(r#"principal = ["header:X-User", "cookie:session"]"#)];

fn ask() -> Ask {
    Ask::post(B1).key(K1)
}

async fn unclear(t: &Subject, ask: Ask) {
    let problem = t.send(&ask).await.problem(400, "principal_unclear");
    assert_eq!(problem["retry"], "never");
    assert_eq!(t.u.total(), 0, "{ask:?}");
}

/// All of these are the anonymous caller, who has one operation.
async fn are_nobody(profile: &[Set], on: Kind, asks: Vec<Ask>) {
    let t = on.start(profile).await;
    let first = t.send(&ask()).await.fresh(201);
    for ask in asks {
        t.send(&ask).await.replays(&first);
    }
    assert_eq!(t.n(), 1);
}

// R26; threat K3
async fn an_empty_credential_is_none(on: Kind) {
    let empty = |name: &str, value: &str| ask().header(name, value);
    let automatic = vec![
        empty("X-Api-Key", ""),
        empty("X-Api-Key", "  "),
        empty("Authorization", ""),
        empty("Authorization", "Bearer"),
        empty("Authorization", "Bearer  "),
        empty("Cookie", ""),
    ];
    are_nobody(D, on, automatic).await;
    let named = vec![
        empty("X-User", ""),
        empty("Cookie", "session="),
        empty("Cookie", "session=; other=1"),
        empty("Cookie", "session=\"\""),
    ];
    are_nobody(BY_NAME, on, named).await;
}

// R26: strangers without a credential must not share operations on a route that refuses nobody.
async fn an_empty_credential_is_refused_where_one_is_needed(on: Kind) {
    let automatic = on.start(&[Set::Toml(r#"anonymous = "reject""#)]).await;
    for name in ["X-Api-Key", "Authorization", "Cookie"] {
        automatic.send(&ask().header(name, "")).await.problem(401, "principal_missing");
    }
    let lines = "anonymous = \"reject\"\nprincipal = [\"header:X-User\", \"cookie:session\"]";
    let named = on.start(&[Set::Toml(lines)]).await;
    for (name, value) in [("X-User", ""), ("X-User", " "), ("Cookie", "session=")] {
        named.send(&ask().header(name, value)).await.problem(401, "principal_missing");
    }
    assert_eq!(automatic.u.total() + named.u.total(), 0);
}

// Two readers of a doubled field may take different ones: ours would be one caller, the upstream's another.
// threat K3
async fn a_doubled_credential_is_unclear(on: Kind) {
    let twice = |name: &str, one: &str, two: &str| ask().header(name, one).header(name, two);
    let automatic = on.start(D).await;
    for (name, one, two) in [
        ("X-Api-Key", "a", "b"),
        ("X-Api-Key", "a", "a"),
        ("X-Api-Key", "", "b"),
        ("Authorization", "Bearer a", "Bearer b"),
        ("Authorization", "Bearer a", ""),
    ] {
        unclear(&automatic, twice(name, one, two)).await;
    }
    let named = on.start(BY_NAME).await;
    unclear(&named, twice("X-User", "ann", "bob")).await;
    unclear(&named, ask().header("Cookie", "session=a; session=b")).await;
    unclear(&named, twice("Cookie", "session=a", "session=b")).await;
    // Cookies of other names may come as often as they like.
    named.send(&ask().header("Cookie", "session=a; x=1; x=2")).await.fresh(201);
}

// The key of an app is often one for all of its users, and who is meant is in the other credential.
// threat K3
async fn an_api_key_does_not_speak_for_a_cookie_or_a_signature(on: Kind) {
    let t = on.start(D).await;
    for (name, value) in [
        ("Cookie", "session=ann"),
        ("Authorization", "DPoP eyJ0"),
        ("Authorization", "AWS4-HMAC-SHA256 Credential=x, Signature=y"),
        ("Authorization", "Digest username=\"ann\""),
        ("Authorization", "HMAC abc"),
        ("Authorization", "sk_live_without_a_scheme"),
    ] {
        unclear(&t, ask().header("X-Api-Key", "app").header(name, value)).await;
    }
    // Nor does a credential that repeats: it may be that of an app, or of the whole site.
    let bearer = ask().tenant("app");
    for (name, value) in
        [("Cookie", "session=ann"), ("X-Auth-Token", "ann"), ("X-Forwarded-User", "ann")]
    {
        unclear(&t, bearer.clone().header(name, value)).await;
        unclear(&t, ask().header("Authorization", "Basic c2l0ZTo=").header(name, value)).await;
    }
}

// threat K13
async fn all_credentials_that_repeat_are_one_caller_together(on: Kind) {
    let t = on.start(D).await;
    let of = |user: &str| {
        ask().tenant("app").header("X-Api-Key", user).header("Cookie", "_ga=1; __cf_bm=2")
    };
    let ann = t.send(&of("ann")).await.fresh(201);
    let bob = t.send(&of("bob")).await.fresh(201);
    t.send(&of("ann")).await.replays(&ann);
    t.send(&of("bob")).await.replays(&bob);
    t.send(&ask().tenant("app")).await.fresh(201);
    assert_eq!(t.n(), 3);
    // Whoever runs the gateway is told once what to configure.
    let token = |value: &str| ask().header("X-Auth-Token", value);
    for value in ["ann", "bob", "ann"] {
        t.send(&token(value)).await.problem(400, "principal_unclear");
    }
    // Without a key there is nothing to guess for.
    t.send(&Ask::post(B1).header("X-Auth-Token", "ann")).await.fresh(201);
    let log = t.end_and_read_logs().await;
    assert_eq!(log.matches("it has the header x-auth-token").count(), 1, "{log}");
    assert!(log.contains("header:x-auth-token") && !log.contains("tok_app"), "{log}");
}

async fn a_cookie_is_read_among_bytes_that_are_not_ascii(on: Kind) {
    let t = on.start(BY_NAME).await;
    let from = |session: &str| {
        let mut line = format!("session={session}; name=").into_bytes();
        line.extend([0xff, 0xe9]);
        ask().header("Cookie", line)
    };
    let first = t.send(&from("ann")).await.fresh(201);
    t.send(&from("bob")).await.fresh(201);
    t.send(&from("ann")).await.replays(&first);
    assert_eq!(t.n(), 2);
}

async fn the_look_up_judges_credentials_as_the_request_does(on: Kind) {
    let t = on.start(D).await;
    let look_up =
        Ask::bare("GET", "/.well-known/idempotency/operation?method=POST&path=/t").key(K1);
    t.send(&ask()).await.fresh(201);
    let shown = t.send(&look_up.clone().header("X-Api-Key", "")).await.fresh(200);
    assert_eq!(shown.json()["state"], "completed");
    let both = look_up.clone().header("X-Api-Key", "a").header("X-Api-Key", "b");
    t.send(&both).await.problem(400, "principal_unclear");
    let dropped = look_up.tenant("ann").header("Connection", "authorization");
    t.send(&dropped).await.problem(400, "request_ambiguous");
}
