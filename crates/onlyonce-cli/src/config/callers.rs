//! How callers are told apart, in words: a wrong `principal` shows one caller the answer of another, or runs retries twice.

use onlyonce::scope::ScopePart;

use super::principal::{PrincipalRule, PrincipalSource};
use super::route::{Anonymous, Route};
use super::{Config, is_proof};

impl Config {
    /// How callers are told apart: a line for `[policy]`, and one for each route that says something else.
    pub fn callers(&self) -> Vec<String> {
        let everywhere = self.callers_of_policy();
        let has_certificates = self.asks_for_certificates();
        let routes = self.routes.iter();
        let routes =
            routes.map(|route| (route.matching.to_string(), route.callers(has_certificates)));
        let own = routes.filter(|(_, sentence)| *sentence != everywhere);
        let own = own.map(|(name, sentence)| format!("{name}: {sentence}"));
        [format!("[policy]: {everywhere}")].into_iter().chain(own).collect()
    }

    /// How callers are told apart where no route says something else, as a sentence without its full stop.
    pub fn callers_of_policy(&self) -> String {
        self.fallback.callers(self.asks_for_certificates())
    }

    /// Whether every client must present a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }
}

impl Route {
    /// How callers are told apart here, as a sentence without its full stop.
    fn callers(&self, has_certificates: bool) -> String {
        let apart = match &self.principal {
            _ if self.webhook.is_some() => {
                return "all deliveries are of one caller, and the signature of each is verified"
                    .to_owned();
            }
            _ if !self.policy.scope().contains(&ScopePart::Principal) => ALL.to_owned(),
            PrincipalRule::None => ALL.to_owned(),
            PrincipalRule::Auto if has_certificates => format!("{AUTO} and {SUBJECT}, {TOGETHER}"),
            PrincipalRule::Auto => format!("{AUTO}, {TOGETHER}; {}", self.without()),
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
            Anonymous::Allow => "requests without credentials share their keys",
            Anonymous::Reject => "requests without credentials are refused",
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
            PrincipalSource::Certificate => SUBJECT.to_owned(),
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
const AUTO: &str = "callers are told apart by the credentials in Authorization (Bearer, Basic, Token or ApiKey), X-Api-Key, \
                    Stripe-Account, Stripe-Context";
const TOGETHER: &str = "all together; a keyed request with a cookie, as browsers send them, or with another header that looks like \
                        a credential is refused";
const SUBJECT: &str = "the subject of their client certificate";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const APART: &str = "callers are told apart by the credentials in Authorization (Bearer, Basic, Token or ApiKey), X-Api-Key, Stripe-Account, Stripe-Context";
    const REFUSED: &str = "all together; a keyed request with a cookie, as browsers send them, or with another header that looks like a credential is refused";

    fn callers(text: &str) -> Vec<String> {
        Config::parse(text, Path::new("onlyonce.toml")).unwrap().callers()
    }

    #[test]
    fn each_way_to_tell_callers_apart_is_said_in_words() {
        let cases = [
            ("", &*format!("{APART}, {REFUSED}; requests without credentials share their keys")),
            ("principal = \"none\"", "all callers share their keys"),
            ("scope = [\"path\"]", "all callers share their keys"),
            (
                "principal = \"jwt:sub\"\nanonymous = \"reject\"\n[jwt]\nkeys = \"k.json\"",
                "callers are told apart by the verified claim sub of their bearer token; requests without credentials are refused",
            ),
            (
                "principal = [\"jwt:tenant,sub\", \"cookie:session\"]\n[jwt]\nkeys = \"k.json\"",
                "callers are told apart by the verified claims tenant and sub of their bearer token, else by the cookie session; requests without credentials share their keys",
            ),
            (
                "principal = [\"header:X-User\", \"header:X-Api-Key\"]\ntrusted_peers = [\"10.0.0.0/8\", \"::1\"]\nauthorize = \"GET /whoami\"",
                "callers are told apart by the header x-user of the peers 10.0.0.0/8, ::1/128, else by the header x-api-key; requests without credentials share their keys; before an answer is repeated, the upstream is asked GET /whoami",
            ),
        ];
        for (policy, expected) in cases {
            let told = callers(&format!("[policy]\n{policy}\n"));
            assert_eq!(told, [format!("[policy]: {expected}")]);
        }
    }

    // R26
    #[test]
    fn every_credential_that_counts_is_said_in_words() {
        let words = callers("")[0].to_ascii_lowercase();
        for credential in &crate::credentials::REPEATING {
            assert!(words.contains(credential.as_str()), "{credential}");
        }
        let tls = "[tls]\ncert = \"a\"\nkey = \"b\"\nclient_ca = \"c\"\n";
        let subject = "the subject of their client certificate";
        assert_eq!(callers(tls), [format!("[policy]: {APART} and {subject}, {REFUSED}")]);
    }

    #[test]
    fn a_route_is_told_of_where_it_differs() {
        let text = "[[route]]\nmatch = \"POST /a\"\n[[route]]\nmatch = \"POST /b\"\nprincipal = \"none\"\n";
        let told = callers(text);
        assert_eq!(told[1..], ["POST /b: all callers share their keys"]);
    }
}
