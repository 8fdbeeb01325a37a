//! How callers are told apart, in words: a wrong `principal` shows one caller the answer of another, or runs retries twice.

use onlyonce::scope::ScopePart;

use super::principal::{PrincipalRule, PrincipalSource};
use super::route::{Anonymous, Route};
use super::{Config, is_proof};

impl Config {
    /// How callers are told apart: a line for `[policy]`, and one for each route that says something else.
    pub fn callers(&self) -> Vec<String> {
        let everywhere = self.fallback.callers();
        let routes = self.routes.iter().map(|route| (route.matching.to_string(), route.callers()));
        let own = routes.filter(|(_, sentence)| *sentence != everywhere);
        let own = own.map(|(name, sentence)| format!("{name}: {sentence}"));
        [format!("[policy]: {everywhere}")].into_iter().chain(own).collect()
    }
}

impl Route {
    /// How callers are told apart here, as a sentence without its full stop.
    pub fn callers(&self) -> String {
        let apart = match &self.principal {
            _ if self.webhook.is_some() => {
                return "all deliveries are of one caller, and the signature of each is verified"
                    .to_owned();
            }
            _ if !self.policy.scope().contains(&ScopePart::Principal) => ALL.to_owned(),
            PrincipalRule::None => ALL.to_owned(),
            PrincipalRule::Auto => format!("{AUTO}; {}", self.without()),
            PrincipalRule::Sources(sources) => {
                let words: Vec<_> = sources.iter().map(|source| self.words(source)).collect();
                format!(
                    "callers are told apart by {}; {}",
                    words.join(", else by "),
                    self.without()
                )
            }
        };
        match &self.authorize {
            Some(rule) => format!(
                "{apart}; before an answer is repeated, the upstream is asked {}",
                rule.question
            ),
            None => apart,
        }
    }

    fn without(&self) -> &'static str {
        match self.anonymous {
            Anonymous::Allow => "callers without one are one caller",
            Anonymous::Reject => "callers without one are refused",
        }
    }

    fn words(&self, source: &PrincipalSource) -> String {
        match source {
            PrincipalSource::Header(name)
                if is_proof(name) || self.trusted_peers.is_everybody() =>
            {
                format!("the header {name}")
            }
            PrincipalSource::Header(name) => {
                format!("the header {name} of the peers {}", self.trusted_peers)
            }
            PrincipalSource::Cookie(name) => format!("the cookie {name}"),
            PrincipalSource::Certificate => "the subject of their client certificate".to_owned(),
            PrincipalSource::CertificateKey => "the key of their client certificate".to_owned(),
            PrincipalSource::Jwt(claims) => match claims.as_slice() {
                [claim] => format!("the verified claim {claim} of their bearer token"),
                claims => {
                    format!("the verified claims {} of their bearer token", claims.join(" and "))
                }
            },
        }
    }
}

const ALL: &str = "all callers share their keys";
const AUTO: &str = "callers are told apart by the credential in Authorization (Bearer, Basic, Token or ApiKey), else by \
                    X-Api-Key";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn callers(text: &str) -> Vec<String> {
        Config::parse(text, Path::new("onlyonce.toml")).unwrap().callers()
    }

    #[test]
    fn each_way_to_tell_callers_apart_is_said_in_words() {
        let cases = [
            (
                "",
                "callers are told apart by the credential in Authorization (Bearer, Basic, Token or ApiKey), else by X-Api-Key; callers without one are one caller",
            ),
            ("principal = \"none\"", "all callers share their keys"),
            ("scope = [\"path\"]", "all callers share their keys"),
            (
                "principal = \"jwt:sub\"\nanonymous = \"reject\"\n[jwt]\nkeys = \"k.json\"",
                "callers are told apart by the verified claim sub of their bearer token; callers without one are refused",
            ),
            (
                "principal = [\"jwt:tenant,sub\", \"cookie:session\"]\n[jwt]\nkeys = \"k.json\"",
                "callers are told apart by the verified claims tenant and sub of their bearer token, else by the cookie session; callers without one are one caller",
            ),
            (
                "principal = [\"header:X-User\", \"header:X-Api-Key\"]\ntrusted_peers = [\"10.0.0.0/8\", \"::1\"]\nauthorize = \"GET /whoami\"",
                "callers are told apart by the header x-user of the peers 10.0.0.0/8, ::1/128, else by the header x-api-key; callers without one are one caller; before an answer is repeated, the upstream is asked GET /whoami",
            ),
        ];
        for (policy, expected) in cases {
            let told = callers(&format!("[policy]\n{policy}\n"));
            assert_eq!(told, [format!("[policy]: {expected}")]);
        }
    }

    #[test]
    fn a_route_is_told_of_where_it_differs() {
        let text = "[[route]]\nmatch = \"POST /a\"\n[[route]]\nmatch = \"POST /b\"\nprincipal = \"none\"\n";
        let told = callers(text);
        assert_eq!(told[1..], ["POST /b: all callers share their keys"]);
    }
}
