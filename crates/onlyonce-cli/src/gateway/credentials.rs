//! The headers that say who is asking: with them the gateway asks the upstream on behalf of a caller.

use http::header::{self, HeaderMap, HeaderName};

use super::principal::CREDENTIALS;
use crate::config::{PrincipalRule, PrincipalSource};

/// The names of these headers on one route, each once: a credential that comes twice is unclear to most services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials(Vec<HeaderName>);

impl Credentials {
    pub(super) fn by(rule: &PrincipalRule) -> Self {
        let sources = match rule {
            PrincipalRule::Sources(sources) => sources.as_slice(),
            PrincipalRule::Auto | PrincipalRule::None => &[],
        };
        let mut names = CREDENTIALS.to_vec();
        for source in sources {
            let name = match source {
                PrincipalSource::Header(name) => name.clone(),
                PrincipalSource::Cookie(_) => header::COOKIE,
                PrincipalSource::Jwt(_) => header::AUTHORIZATION,
                // Only the client itself can show it.
                PrincipalSource::Certificate | PrincipalSource::CertificateKey => continue,
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Self(names)
    }

    /// Those that the client has sent.
    pub(super) fn of(&self, client: &HeaderMap) -> HeaderMap {
        let mut found = HeaderMap::new();
        for name in &self.0 {
            for value in client.get_all(name) {
                found.append(name.clone(), value.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    // R26
    #[test]
    fn each_credential_is_copied_as_often_as_it_came() {
        let sources = ["jwt:sub", "header:x-api-key", "header:x-user", "cookie:session"];
        let sources = sources.map(|source| source.parse().unwrap()).to_vec();
        let credentials = Credentials::by(&PrincipalRule::Sources(sources));
        let line = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let client = HeaderMap::from_iter([
            line("authorization", "Bearer a"),
            line("cookie", "session=1"),
            line("x-api-key", "k"),
            line("x-user", "ann"),
            line("accept", "text/plain"),
            line("idempotency-key", "k"),
        ]);
        let copied = credentials.of(&client);
        let mut names: Vec<_> = copied.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "cookie", "x-api-key", "x-user"]);
    }
}
