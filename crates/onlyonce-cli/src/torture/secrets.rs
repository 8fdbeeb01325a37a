//! Values that must never be printed.

/// The values of headers that were given, as they might appear in a text.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// All values that may be credentials, and the part of each after its scheme, such as `Bearer`.
    pub(crate) fn of<'a>(headers: impl IntoIterator<Item = &'a (String, String)>) -> Self {
        let mut found = Vec::new();
        for (name, value) in headers {
            if is_harmless(name) {
                continue;
            }
            found.push(value.clone());
            found.extend(value.split([' ', ';', '=']).map(str::to_owned));
        }
        found.retain(|text| text.len() >= BYTES_MIN && !text.contains("{marker}"));
        found.sort_by_key(|text| std::cmp::Reverse(text.len()));
        found.dedup();
        Self(found)
    }

    /// The text without them.
    pub(crate) fn scrubbed(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// Whether the value of this header may be printed.
pub(crate) fn is_harmless(name: &str) -> bool {
    HARMLESS.iter().any(|harmless| name.eq_ignore_ascii_case(harmless))
}

/// An address in which values that may be credentials are hidden.
pub(crate) fn shown_url(url: &str) -> String {
    let Some((start, query)) = url.split_once('?') else { return url.to_owned() };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _))
            if SECRET_NAMES.iter().any(|secret| name.to_ascii_lowercase().contains(secret)) =>
        {
            format!("{name}=***")
        }
        _ => pair.to_owned(),
    });
    format!("{start}?{}", shown.collect::<Vec<_>>().join("&"))
}

const HARMLESS: [&str; 6] =
    ["content-type", "accept", "user-agent", "host", "content-length", "accept-language"];

const SECRET_NAMES: [&str; 6] = ["token", "secret", "password", "api_key", "apikey", "signature"];

/// Shorter values would be found everywhere.
const BYTES_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_with_and_without_their_scheme() {
        let headers = [
            ("Authorization".to_owned(), "Bearer abcdef".to_owned()),
            ("Accept".to_owned(), "application/json".to_owned()),
        ];
        let secrets = Secrets::of(&headers);
        assert_eq!(secrets.scrubbed("x Bearer abcdef y"), "x *** y");
        assert_eq!(secrets.scrubbed("\"abcdef\" application/json"), "\"***\" application/json");
    }

    #[test]
    fn credentials_in_an_address_are_hidden() {
        assert_eq!(
            shown_url("http://h/c?marker=1&access_token=abc"),
            "http://h/c?marker=1&access_token=***"
        );
    }
}
