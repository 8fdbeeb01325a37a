//! The methods that a request names besides its own, which many services take in its place.

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri};

use crate::body::form;
use crate::fingerprint::is_method_override;
use crate::key::form_value;

/// What stands in for the method of a request.
///
/// 1. A header such as `X-HTTP-Method-Override`, also with `_` for `-`.
/// 2. The query parameter `_method`, and the form field of that name.
#[derive(Debug, Default)]
pub struct Overrides {
    /// The methods that are named, as they are written.
    pub names: Vec<Box<[u8]>>,
    /// Whether a header does not name one method and nothing else: what a service makes of it, nobody knows.
    pub is_unclear: bool,
}

impl Overrides {
    /// What the head of a request names.
    pub fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for (_, value) in headers.iter().filter(|(name, _)| is_method_override(name)) {
            found.add_header(value);
        }
        if let Some(query) = uri.query().filter(|query| query.contains(['%', '_'])) {
            for value in form::values(query.as_bytes(), PARAMETER).flatten() {
                found.add_words(&value);
            }
        }
        found
    }

    /// What the form in this body names.
    pub fn of_form(head: &Parts, body: &[u8]) -> Self {
        let mut found = Self::default();
        match form_value(head, body, PARAMETER) {
            Ok(value) => found.add_words(value.unwrap_or_default().as_bytes()),
            // Two fields, or a form that cannot be read.
            Err(_) => found.is_unclear = true,
        }
        found
    }

    /// Whether nothing stands in for the method.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.is_unclear
    }

    fn add_header(&mut self, value: &HeaderValue) {
        match value.as_bytes().trim_ascii() {
            name if !name.is_empty() && name.iter().all(is_of_name) => self.add(name),
            _ => self.is_unclear = true,
        }
    }

    /// An application may have a parameter of this name that is about something else: only words in it count.
    fn add_words(&mut self, value: &[u8]) {
        let words = value.split(|byte| !is_of_name(byte)).filter(|word| !word.is_empty());
        words.for_each(|word| self.add(word));
    }

    /// A client may send very many.
    fn add(&mut self, name: &[u8]) {
        match self.names.iter().any(|known| **known == *name) {
            true => {}
            false if self.names.len() < NAMES_MAX => self.names.push(name.into()),
            false => self.is_unclear = true,
        }
    }
}

fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphabetic() || *byte == b'-'
}

/// What Rails, Laravel, Symfony and Express's method-override look for.
const PARAMETER: &str = "_method";
const NAMES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn named(builder: http::request::Builder) -> (Vec<String>, bool) {
        let head = builder.body(()).unwrap().into_parts().0;
        let overrides = Overrides::of(&head.uri, &head.headers);
        let names = overrides.names.iter().map(|name| String::from_utf8(name.to_vec()).unwrap());
        (names.collect(), overrides.is_unclear)
    }

    fn header(name: &str, value: &str) -> (Vec<String>, bool) {
        named(Request::post("/t").header(name, value))
    }

    #[test]
    fn a_header_names_one_method_or_is_unclear() {
        for name in [
            "X-HTTP-Method-Override",
            "X_HTTP_Method_Override",
            "x-http_method",
            "X-Method-Override",
        ] {
            assert_eq!(header(name, " delete "), (vec!["delete".to_owned()], false), "{name}");
            for odd in
                ["DELETE, x", "DELETE;q=1", "\"DELETE\"", "DELETE\tx", "", "DEL ETE", "{DELETE}"]
            {
                assert_eq!(header(name, odd), (vec![], true), "{name}: {odd}");
            }
        }
        assert_eq!(header("X-Method", "DELETE"), (vec![], false));
        let doubled =
            Request::post("/t").header("x-http-method", "PUT").header("x_http_method", "PATCH");
        assert_eq!(named(doubled), (vec!["PUT".to_owned(), "PATCH".to_owned()], false));
    }

    #[test]
    fn the_words_of_the_parameter_count() {
        let query = |query: &str| named(Request::get(format!("/t?{query}"))).0;
        assert_eq!(query("_method=DELETE"), ["DELETE"]);
        assert_eq!(query("a=1&_method=%64elete&_method=PUT"), ["delete", "PUT"]);
        assert_eq!(query("%5Fmethod=DELETE"), ["DELETE"]);
        assert_eq!(query("_method=DELETE,x"), ["DELETE", "x"]);
        assert!(query("method=DELETE&_method").is_empty());
        let form = |media: &str, body: &str| {
            let head =
                Request::post("/t").header("content-type", media).body(()).unwrap().into_parts().0;
            Overrides::of_form(&head, body.as_bytes())
        };
        let media = "application/x-www-form-urlencoded";
        assert_eq!(form(media, "a=1&_method=DELETE").names, [b"DELETE".as_slice().into()]);
        assert!(form(media, "a=1").is_empty());
        assert!(form(media, "_method=PUT&_method=DELETE").is_unclear);
        let parts =
            "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n";
        let found = form("multipart/form-data; boundary=b", parts);
        assert_eq!(found.names, [b"DELETE".as_slice().into()]);
    }
}
