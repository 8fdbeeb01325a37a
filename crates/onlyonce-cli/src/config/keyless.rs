//! What becomes of requests without a key, in words: who forgot to require one finds out from two orders.

use onlyonce::key::KeySource;
use onlyonce::policy::KeyNeed;

use super::Config;
use super::route::Route;

impl Config {
    /// Where a request without a key is passed on unguarded, in one line; `None` if nowhere.
    pub fn keyless(&self) -> Option<String> {
        let routes = self.routes.iter().filter(|route| route.passes_keyless());
        let mut names: Vec<_> = routes.map(|route| route.matching.to_string()).collect();
        if self.fallback.passes_keyless() {
            names.push("every path without a route ([policy])".to_owned());
        }
        let told = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!names.is_empty()).then(|| {
            format!(
                "a request without a key is passed on unguarded, and executed each time that it comes: {told}{more}; `key` = \"required\" refuses it"
            )
        })
    }
}

impl Route {
    fn passes_keyless(&self) -> bool {
        let is_always_there =
            |source: &KeySource| matches!(source, KeySource::Fingerprint | KeySource::Body { .. });
        self.policy.key() == KeyNeed::Optional
            && !self.policy.key_from().iter().any(is_always_there)
    }
}

/// Routes that are named.
const NAMES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn keyless(text: &str) -> Option<String> {
        Config::parse(text, Path::new("onlyonce.toml")).unwrap().keyless()
    }

    #[test]
    fn routes_that_pass_requests_without_a_key_are_named() {
        let routes = "[policy]\nkey = \"required\"\n\
                      [[route]]\nmatch = \"POST /pay\"\npreset = \"payments\"\n\
                      [[route]]\nmatch = \"POST /signup\"\npreset = \"signup\"\nkey = \"optional\"\n\
                      [[route]]\nmatch = \"POST /same\"\nkey = \"optional\"\nkey_from = [\"fingerprint\"]\n";
        let told = keyless(routes).unwrap();
        assert!(told.contains("that it comes: POST /signup; `key`"), "{told}");
        let told = keyless("[[route]]\nmatch = \"POST /signup\"\npreset = \"signup\"\n").unwrap();
        assert!(
            told.contains("POST /signup, every path without a route ([policy]); `key`"),
            "{told}"
        );
        assert_eq!(keyless("[policy]\nkey = \"required\"\n"), None);
        let many: String = (0..25).map(|n| format!("[[route]]\nmatch = \"POST /{n}\"\n")).collect();
        assert!(keyless(&many).unwrap().contains("POST /19 and 6 more;"));
    }
}
