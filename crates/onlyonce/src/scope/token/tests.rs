use http::HeaderMap;

use super::*;
use crate::key::{Key, KeyRules};
use crate::scope::Principal;

const EXPIRY: StoreTime = StoreTime::from_ms(1_800_000_000_000);

/// What a token is bound to, part by part.
#[derive(Clone)]
struct Place {
    secret: &'static str,
    caller: &'static str,
    route: &'static str,
    host: &'static str,
    method: &'static str,
    path: &'static str,
    tenant: &'static str,
    parts: Vec<ScopePart>,
}

impl Place {
    fn with<T>(&self, act: impl FnOnce(Bound<'_>) -> T) -> T {
        let mut headers = HeaderMap::new();
        headers.insert("x-tenant", self.tenant.parse().unwrap());
        let principal = &Principal::of("bearer", self.caller.as_bytes());
        let (host, method, path) = (self.host, self.method, self.path);
        let scope = &Scope { principal, host, method, path, headers: &headers, body: b"" };
        let secret = &Secret::new(self.secret);
        act(Bound { secret, route: self.route, parts: &self.parts, scope })
    }
}

fn here() -> Place {
    let tenant = ScopePart::Header("x-tenant".parse().unwrap());
    Place {
        secret: "the deployment's secret",
        caller: "ann",
        route: "POST /charges",
        host: "api.test",
        method: "POST",
        path: "/charges",
        tenant: "t1",
        parts: ScopePart::DEFAULT.into_iter().chain([tenant]).collect(),
    }
}

#[test]
fn a_token_is_a_key_of_its_place() {
    let token = here().with(|bound| bound.issue(EXPIRY));
    assert_eq!(token.len(), TOKEN_LENGTH);
    assert!(has_form(&token));
    assert!(Key::from_text(&token, &KeyRules::default()).is_ok());
    let bare = Key::from_field_lines([token.as_bytes()], &KeyRules::default());
    assert_eq!(bare.unwrap().unwrap().as_str(), token);
    assert_eq!(here().with(|bound| bound.verify(&token)), Some(EXPIRY));
}

// R164
#[test]
fn every_token_is_another_one() {
    let tokens = [(); 2].map(|()| here().with(|bound| bound.issue(EXPIRY)));
    assert_ne!(tokens[0], tokens[1]);
}

// R166
#[test]
fn a_token_is_none_anywhere_else() {
    let token = here().with(|bound| bound.issue(EXPIRY));
    let elsewhere = [
        Place { secret: "another secret", ..here() },
        Place { caller: "bob", ..here() },
        Place { route: "POST /refunds", ..here() },
        Place { host: "other.test", ..here() },
        Place { method: "PATCH", ..here() },
        Place { path: "/charges/1", ..here() },
        Place { tenant: "t2", ..here() },
    ];
    for place in elsewhere {
        assert_eq!(place.with(|bound| bound.verify(&token)), None);
    }
}

#[test]
fn the_caller_counts_even_where_the_scope_leaves_it_out() {
    let shared = Place { parts: Vec::new(), ..here() };
    let token = shared.with(|bound| bound.issue(EXPIRY));
    assert_eq!(shared.with(|bound| bound.verify(&token)), Some(EXPIRY));
    let other = Place { caller: "bob", ..shared };
    assert_eq!(other.with(|bound| bound.verify(&token)), None);
}

// R166
#[test]
fn a_token_that_was_changed_is_none() {
    let token = here().with(|bound| bound.issue(EXPIRY));
    let verify = |text: &str| here().with(|bound| bound.verify(text));
    for place in 0..token.len() {
        for other in "0123456789abcdefABCDEF_~".chars() {
            let mut changed: Vec<char> = token.chars().collect();
            if std::mem::replace(&mut changed[place], other) != other {
                assert_eq!(verify(&changed.into_iter().collect::<String>()), None, "{place}");
            }
        }
    }
    let others =
        [token.to_uppercase(), format!("{token}0"), token[..84].to_owned(), "é".repeat(60)];
    for other in others.iter().map(String::as_str).chain(["", "oot1_", "order-17"]) {
        assert_eq!(verify(other), None, "{other}");
    }
}

// R167
#[test]
fn a_context_has_one_token_until_the_expiry_changes() {
    let of = |context: &[u8], expiry| here().with(|bound| bound.issue_for(context, expiry));
    let token = of(b"booking 1", EXPIRY);
    assert_eq!(token, of(b"booking 1", EXPIRY));
    assert_ne!(token, of(b"booking 2", EXPIRY));
    assert_ne!(token[21..53], of(b"booking 1", EXPIRY.plus_ms(1))[21..53], "the unique bytes");
    let bobs = Place { caller: "bob", ..here() };
    assert_ne!(token[21..53], bobs.with(|bound| bound.issue_for(b"booking 1", EXPIRY))[21..53]);
    assert_eq!(here().with(|bound| bound.verify(&token)), Some(EXPIRY));
}

#[test]
fn the_token_of_a_context_lives_for_half_of_the_ttl_or_more() {
    let at = |now| context_expiry(StoreTime::from_ms(now), Duration::from_millis(1_000)).as_ms();
    assert_eq!([at(5_000), at(5_499), at(5_500), at(5_999)], [6_000, 6_000, 6_500, 6_500]);
    let shortest = context_expiry(StoreTime::from_ms(5), Duration::from_millis(1));
    assert_eq!(shortest.as_ms(), 7);
}
