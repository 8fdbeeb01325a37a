//! The headers that say who is asking: with them the gateway asks the upstream on behalf of a caller.

use http::header::{HeaderMap, HeaderName};
use onlyonce::key::KeySource;

use crate::config::{PrincipalRule, PrincipalSource, Route};
use crate::credentials::{Role, role};

/// Which headers these are on one route: what looks like a credential, and what the route says is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    named: Vec<HeaderName>,
    /// A question has no key, whatever its name looks like.
    keys: Vec<HeaderName>,
}

impl Credentials {
    pub(super) fn of(route: &Route) -> Self {
        let sources = match &route.principal {
            PrincipalRule::Sources(sources) => sources.as_slice(),
            PrincipalRule::Auto | PrincipalRule::None => &[],
        };
        let named = sources.iter().filter_map(|source| match source {
            PrincipalSource::Header(name) => Some(name.clone()),
            // Cookies and bearer tokens look like credentials, and a certificate only the client itself can show.
            _ => None,
        });
        let keys = route.policy.key_from().iter().filter_map(|source| match source {
            KeySource::Header(name) => Some(name.clone()),
            _ => None,
        });
        Self { named: named.collect(), keys: keys.collect() }
    }

    /// Those that the client has sent, each as often as it came: one that comes twice is unclear to most services.
    pub(super) fn copied(&self, client: &HeaderMap) -> HeaderMap {
        let mut found = HeaderMap::new();
        for (name, value) in client.iter().filter(|(name, _)| self.has(name)) {
            found.append(name.clone(), value.clone());
        }
        found
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.named.contains(name) || (role(name) != Role::Nothing && !self.keys.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::HeaderValue;

    use super::*;
    use crate::config::Config;

    fn copied(policy: &str) -> Vec<String> {
        let config = Config::parse(policy, Path::new("onlyonce.toml")).unwrap();
        let client = [
            "authorization",
            "cookie",
            "x-api-key",
            "stripe-account",
            "x-auth-token",
            "x-caller",
            "x-order-key",
            "accept",
            "user-agent",
            "payment-signature",
            "x-csrf-token",
            "idempotency-key",
        ];
        let line = |name| (HeaderName::from_static(name), HeaderValue::from_static("1"));
        let copied =
            Credentials::of(&config.fallback).copied(&client.into_iter().map(line).collect());
        copied.keys().map(ToString::to_string).collect()
    }

    // R26, threat K13
    #[test]
    fn a_question_has_every_credential_of_the_caller_and_nothing_else() {
        let all = ["authorization", "cookie", "x-api-key", "stripe-account", "x-auth-token"];
        assert_eq!(copied("[policy]\nkey_from = [\"header:X-Order-Key\"]\n"), all);
        let named = "[policy]\nprincipal = [\"header:X-Caller\", \"cookie:session\"]\nkey_from = [\"header:X-Order-Key\"]\n";
        assert_eq!(copied(named), [&all[..], &["x-caller"]].concat());
    }

    // R26
    #[test]
    fn each_credential_is_copied_as_often_as_it_came() {
        let config = Config::parse("", Path::new("onlyonce.toml")).unwrap();
        let twice = ["a", "b"]
            .map(|value| (HeaderName::from_static("x-api-key"), HeaderValue::from_static(value)));
        let mut client = HeaderMap::new();
        for (name, value) in twice {
            client.append(name, value);
        }
        assert_eq!(Credentials::of(&config.fallback).copied(&client).len(), 2);
    }
}
