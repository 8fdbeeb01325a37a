//! Who asks under `auto`, by the table of the docs and beyond it.

use std::path::Path;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request};
use onlyonce::http::Who;
use onlyonce::scope::Principal;

use super::super::forward::Client;
use super::super::headers::Origin;
use super::Callers;
use crate::config::Config;
use crate::connections::ConnectionState;
use crate::tls::ClientCertificate;

type Lines<'a> = Vec<(&'a str, String)>;

fn callers(text: &str) -> Callers {
    let config = Config::parse(text, Path::new("onlyonce.toml")).unwrap();
    Callers::of(&config.fallback, None)
}

fn head(lines: &Lines<'_>) -> Parts {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let (mut head, ()) = Request::new(()).into_parts();
    (head.method, head.headers) = (Method::POST, headers);
    head
}

fn auto(lines: &Lines<'_>) -> Who {
    callers("").identify(&head(lines))
}

fn lines<'a>(lines: &[(&'a str, &str)]) -> Lines<'a> {
    lines.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

fn known(who: Who) -> Principal {
    match who {
        Who::Known(principal) => principal,
        who => panic!("{who:?}"),
    }
}

#[track_caller]
fn unclear(who: Who) -> String {
    match who {
        Who::Unclear(why) => why,
        who => panic!("{who:?}"),
    }
}

/// The texts between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rows of the table in the docs: the sender, its headers, and what is made of them.
fn rows(docs: &str) -> Vec<(&str, Lines<'_>, &str)> {
    let table = docs.split_once("| sender | headers |").expect("the table").1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line| -> (&str, Lines<'_>, &str) {
        let cells: Vec<_> =
            str::split(line, " | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        let [sender, headers, verdict] = cells[..] else { panic!("{line}") };
        let header = |text| str::split_once(text, ": ").unwrap_or((text, "1"));
        let headers = quoted(headers).into_iter().map(header);
        let headers = headers.map(|(name, value)| (name, value.to_owned()));
        (sender, headers.collect(), verdict)
    };
    rows.map(row).collect()
}

// R26, threat K13: the table is what users are told of their clients.
#[test]
fn what_common_clients_send_is_judged_as_the_docs_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/identity.md");
    let docs = std::fs::read_to_string(file).unwrap();
    let rows = rows(&docs);
    assert!(rows.len() > 40, "{}", rows.len());
    for (sender, lines, verdict) in rows {
        match verdict.split_once(": ") {
            Some(("400", why)) => {
                let told = unclear(auto(&lines));
                let named = quoted(why)[0];
                assert!(told.contains(named), "{sender}: {told}");
            }
            _ => is_made_of(sender, &lines, &quoted(verdict)),
        }
    }
}

/// Whether each of these headers makes another caller with another value, and no other header does.
#[track_caller]
fn is_made_of(sender: &str, lines: &Lines<'_>, credentials: &[&str]) {
    let principal = known(auto(lines));
    assert_eq!(principal == Principal::anonymous(), credentials.is_empty(), "{sender}");
    for place in 0..lines.len() {
        let name = lines[place].0;
        let mut others = lines.clone();
        others[place].1.push('x');
        let is_credential =
            credentials.iter().any(|credential| name.eq_ignore_ascii_case(credential));
        assert_eq!(known(auto(&others)) != principal, is_credential, "{sender}: {name}");
    }
}

// threat K13
#[test]
fn what_looks_like_a_credential_is_refused_whatever_it_is_beside() {
    let names = [
        "X-Auth-Token",
        "X-Access-Token",
        "Private-Token",
        "Api-Key",
        "X-Session-Id",
        "X-Forwarded-User",
        "X-Forwarded-Email",
        "X-Account-Id",
        "X-Signature",
        "apikey",
        "x_auth_token",
        "Authtoken",
        "X-User",
        "X-UserId",
        "X-Tenant-Id",
        "X-JWT",
        "X-Goog-Api-Key",
        "Ocp-Apim-Subscription-Key",
        "X-Remote-User",
        "X-Consumer-Username",
        "X-Hasura-Admin-Secret",
        "Client-Cert",
        "X-ARR-ClientCert",
        "X-Amzn-Mtls-Clientcert-Subject",
        "l5d-client-id",
        "PayPal-Auth-Assertion",
        "X-Hub-Signature-256",
        "auth-token-bin",
        "x-api-key-bin",
        "authorization-bin",
        "X-Token-User-Agent",
    ];
    for name in names {
        for beside in [&[][..], &[("authorization", "Bearer app")], &[("x-api-key", "app")]] {
            let mut lines = lines(beside);
            lines.push((name, "ann".to_owned()));
            let told = unclear(auto(&lines));
            assert!(told.contains(&name.to_ascii_lowercase()), "{name}: {told}");
            // An empty credential is none.
            lines.last_mut().unwrap().1 = " ".to_owned();
            known(auto(&lines));
        }
    }
}

// threat K13
#[test]
fn a_cookie_is_refused_unless_it_is_known_to_name_nobody() {
    let of =
        |cookie: &str| auto(&lines(&[("authorization", "Basic c2l0ZQ=="), ("cookie", cookie)]));
    for cookie in [
        "session=ann",
        "_ga=1; sid=ann",
        "_ga=1;sid=ann",
        "ann",
        "_ga=1; =ann",
        "CF_Authorization=1",
        "_gauth=1",
    ] {
        unclear(of(cookie));
    }
    let alone = known(auto(&lines(&[("authorization", "Basic c2l0ZQ==")])));
    for cookie in [
        "",
        " ",
        "session=",
        "session=\"\"; x=",
        "_ga=1; _gid=2; __cf_bm=3",
        "_hjid=1",
        "mp_1_mixpanel=1",
        ";;",
    ] {
        assert_eq!(known(of(cookie)), alone, "{cookie}");
    }
    // HTTP/2 sends each cookie in a line of its own, also beside a header of statistics.
    let crumbs = lines(&[("cookie", "_ga=1"), ("cookie", "session=ann")]);
    assert!(unclear(auto(&crumbs)).contains("session"));
}

// threat K13
#[test]
fn credentials_are_one_caller_together_and_one_alone_is_what_it_was() {
    let of = |list: &[(&str, &str)]| known(auto(&lines(list)));
    let (app, ann) = (("authorization", "Bearer app"), ("x-api-key", "ann"));
    assert_eq!(of(&[app]), Principal::of("bearer", b"app"));
    assert_eq!(of(&[ann]), Principal::of("x-api-key", b"ann"));
    let all = [of(&[app]), of(&[ann]), of(&[app, ann]), of(&[app, ("x-api-key", "bob")]), of(&[])];
    for (place, one) in all.iter().enumerate() {
        assert!(!all[..place].contains(one), "{place}");
    }
    assert_eq!(of(&[app, ann]), of(&[ann, app]), "their order means nothing");
    assert_ne!(of(&[app, ("stripe-account", "a")]), of(&[app, ("stripe-context", "a")]));
    for (name, _) in [app, ann, ("stripe-account", ""), ("stripe-context", "")] {
        let twice = unclear(auto(&lines(&[(name, "Bearer a"), (name, "Bearer a")])));
        assert!(twice.contains("more than once"), "{twice}");
    }
}

// R26
#[test]
fn headers_that_the_route_explains_are_no_credentials() {
    let text = "[policy]\nkey_from = [\"header:X-Order-Key\"]\ndeadline_from = [\"header:X-Session-End\"]\n\
                scope = [\"principal\", \"host\", \"method\", \"path\", \"header:X-Tenant\"]\n";
    let of = |name| callers(text).identify(&head(&lines(&[(name, "1")])));
    for name in ["x-order-key", "x-session-end", "x-tenant"] {
        assert_eq!(known(of(name)), Principal::anonymous(), "{name}");
    }
    unclear(of("x-auth-token"));
    // Where callers are not told apart anyway, nobody is refused for their sake.
    let shared = callers("[policy]\nscope = [\"host\", \"method\", \"path\"]\n");
    known(shared.identify(&head(&lines(&[("cookie", "session=ann"), ("x-auth-token", "1")]))));
}

// threat K14
#[test]
fn a_client_certificate_is_a_part_of_the_caller() {
    let certificate = |name: Option<&str>| ClientCertificate {
        name: name.map(|name| Principal::of("mtls", name.as_bytes())),
        key: Principal::of("mtls:spki", b"key"),
    };
    let of = |name: Option<&str>, list: &[(&str, &str)]| {
        let mut head = head(&lines(list));
        let origin = Origin::new(([127, 0, 0, 1], 1).into(), true);
        let (state, certificate) = (ConnectionState::default(), Some(certificate(name)));
        head.extensions.insert(Arc::new(Client { origin, state, certificate }));
        callers("").identify(&head)
    };
    let [ann, bob] = ["ann", "bob"].map(|name| known(of(Some(name), &[])));
    assert_eq!(ann, Principal::of("mtls", b"ann"));
    assert!(ann != bob && ann != Principal::anonymous());
    let token = [("authorization", "Bearer app")];
    let [ann_with, bob_with] = ["ann", "bob"].map(|name| known(of(Some(name), &token)));
    assert!(ann_with != bob_with && ann_with != ann && ann_with != Principal::of("bearer", b"app"));
    assert!(unclear(of(None, &token)).contains("no subject"));
}
