//! Why a caller is unclear: a sentence for its client, and for whoever runs the gateway what to configure.

use std::sync::{Mutex, PoisonError};

use http::HeaderName;
use onlyonce::code::Code;
use tracing::warn;

use crate::config::Route;

/// Why the credentials of a request do not say who asks.
#[derive(Debug)]
pub(super) enum Unclear {
    /// This comes more than once.
    Doubled(String),
    /// This header looks like a credential.
    Header(HeaderName),
    /// A cookie may name the caller: the one of this name, if it has one that can be written.
    Cookie(Option<String>),
    /// The `Authorization` may sign each request anew.
    Signed,
    /// The client's certificate has no subject.
    NoSubject,
}

impl Unclear {
    pub(super) fn of_cookie(name: &[u8]) -> Self {
        // A cookie's name is a token, and so is a header field's. What is none may be a part of a value.
        let is_name = name.len() <= NAME_LENGTH_MAX && HeaderName::from_bytes(name).is_ok();
        Self::Cookie(is_name.then(|| String::from_utf8_lossy(name).into_owned()))
    }

    /// For the client, who cannot configure anything.
    fn detail(&self) -> String {
        match self {
            Self::Doubled(what) => format!(
                "The request has {what} more than once, and each may name another caller. Send it once."
            ),
            Self::Header(name) => {
                format!("The header {} looks like a credential, {UNTOLD}", short(name))
            }
            Self::Cookie(Some(name)) => format!("The cookie {name} may be a credential, {UNTOLD}"),
            Self::Cookie(None) => format!("The request has a cookie, {UNTOLD}"),
            Self::Signed => format!(
                "The Authorization field has no scheme, or one that may sign each request anew, so that a retry may look \
                 like another caller. {ASK}"
            ),
            Self::NoSubject => {
                format!("The client certificate has no subject, so that it names nobody. {ASK}")
            }
        }
    }

    /// For whoever runs the gateway; nothing where the client is to blame.
    fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Self::Doubled(_) => return None,
            Self::Header(name) => {
                let name = short(name);
                format!(
                    "it has the header {name}, which looks like a credential, and `principal = \"auto\"` does not guess \
                     whether it names the caller: set `principal` to \"header:{name}\" if it does, to \
                     \"header:authorization\" if only that does, or add \"header:{name}\" to `scope` if both do"
                )
            }
            Self::Cookie(name) => {
                let name = name.as_deref().unwrap_or("NAME");
                format!(
                    "it has a cookie, and `principal = \"auto\"` does not guess which cookie names the caller: set \
                     `principal` to \"cookie:{name}\" if this one does, to \"header:authorization\" if only that does, or \
                     to \"none\" if all callers may share their keys"
                )
            }
            Self::Signed => "its Authorization has no scheme, or one that may sign each request anew: set `principal` to \
                             \"header:NAME\", a header that names the caller"
                .to_owned(),
            Self::NoSubject => {
                "its client certificate has no subject: set `principal` to \"mtls:spki\", which tells callers apart by \
                 their keys"
                    .to_owned()
            }
        };
        Some(remedy)
    }
}

/// As much of a name as fits in a sentence: a client may send a very long one.
fn short(name: &HeaderName) -> &str {
    let name = name.as_str();
    &name[..name.len().min(NAME_LENGTH_MAX)]
}

/// What whoever runs the gateway was told of one route.
#[derive(Debug)]
pub(super) struct Remedies {
    route: String,
    told: Mutex<Vec<String>>,
}

impl Remedies {
    pub(super) fn of(route: &Route) -> Self {
        Self { route: route.matching.to_string(), told: Mutex::default() }
    }

    /// The sentence for the client. What to configure is told in the log, once for each cause.
    pub(super) fn tell(&self, unclear: &Unclear) -> String {
        if let Some(remedy) = unclear.remedy().filter(|remedy| self.is_new(remedy)) {
            warn!(
                route = self.route,
                code = Code::PrincipalUnclear.text(),
                "a keyed request was refused: {remedy} (docs/identity.md)"
            );
        }
        unclear.detail()
    }

    fn is_new(&self, remedy: &str) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = told.len() < TOLD_MAX && !told.iter().any(|earlier| earlier == remedy);
        if is_new {
            told.push(remedy.to_owned());
        }
        is_new
    }
}

/// Names that are longer say nothing more.
const NAME_LENGTH_MAX: usize = 64;
/// Clients choose the names: so many causes of a route are told.
const TOLD_MAX: usize = 16;
const UNTOLD: &str = "and the gateway was not told whether it names the caller. Whoever runs the gateway must set \
                      `principal` for this route.";
const ASK: &str = "Whoever runs the gateway must set `principal` for this route.";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn remedies() -> Remedies {
        Remedies::of(&Config::parse("", Path::new("onlyonce.toml")).unwrap().fallback)
    }

    #[test]
    fn each_cause_is_told_once_and_no_more_causes_than_are_bounded() {
        let remedies = remedies();
        let causes = |remedies: &Remedies| remedies.told.lock().unwrap().len();
        for _ in 0..3 {
            remedies.tell(&Unclear::of_cookie(b"session"));
            remedies.tell(&Unclear::Header(HeaderName::from_static("x-auth-token")));
        }
        assert_eq!(causes(&remedies), 2);
        for number in 0..100 {
            let name = format!("x-token-{number}").parse().unwrap();
            remedies.tell(&Unclear::Header(name));
        }
        assert_eq!(causes(&remedies), TOLD_MAX);
    }

    #[test]
    fn nothing_of_a_value_and_no_endless_name_is_told() {
        for cookie in [&b""[..], b"eyJ0/+", "n\u{e4}me".as_bytes(), &[b'a'; 65]] {
            assert!(matches!(Unclear::of_cookie(cookie), Unclear::Cookie(None)), "{cookie:?}");
        }
        let long = Unclear::Header("x-token-".repeat(1_000).parse().unwrap());
        for text in [long.detail(), long.remedy().unwrap()] {
            assert!(text.len() < 700, "{text}");
        }
    }

    #[test]
    fn a_client_that_sends_a_credential_twice_is_told_and_nobody_else() {
        let doubled = Unclear::Doubled("x-api-key".to_owned());
        assert!(doubled.detail().contains("x-api-key more than once"));
        assert!(doubled.remedy().is_none());
    }
}
