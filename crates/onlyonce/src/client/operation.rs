//! An operation on the wire: one key, one set of bytes, however often it is sent.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri};

use super::retries::Settings;
use crate::clock::StoreTime;
use crate::key::Key;

/// The request that is sent at every attempt.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// `None` while the result of a 303 is read.
    pub(crate) key: Option<Key>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Operation {
    /// The request of attempt `number`. Except for that number its bytes are the same each time.
    pub(crate) fn request(
        &self,
        settings: &Settings,
        number: u32,
        deadline: StoreTime,
    ) -> Request<Bytes> {
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        if let Some(key) = &self.key {
            headers.insert(settings.key_header.clone(), field(key, settings.is_quoted));
        }
        if self.key.is_some() && settings.tells_attempt {
            headers.insert(IDEMPOTENCY_ATTEMPT, number.into());
        }
        if settings.tells_deadline
            && let Ok(text) = deadline.rfc3339().try_into()
        {
            headers.insert(X_REQUEST_DEADLINE, text);
        }
        request
    }

    /// The same operation, sent elsewhere.
    pub(crate) fn moved(self, to: Uri) -> Self {
        Self { uri: to, ..self }
    }

    /// The GET for the operation's result, which is no operation itself and has no key.
    pub(crate) fn result_at(self, to: Uri) -> Self {
        let mut headers = self.headers;
        for name in CONTENT_HEADERS {
            headers.remove(name);
        }
        Self { key: None, method: Method::GET, uri: to, headers, body: Bytes::new() }
    }

    /// Replaces headers of the same name. The key and the headers that describe the body stay, because changing them
    /// would make another request.
    #[cfg(feature = "client-journal")]
    pub(crate) fn replace_headers(&mut self, headers: &HeaderMap, key_header: &HeaderName) {
        for name in headers.keys() {
            if name == key_header || CONTENT_HEADERS.contains(name) {
                continue;
            }
            self.headers.remove(name);
            for value in headers.get_all(name) {
                self.headers.append(name.clone(), value.clone());
            }
        }
    }

    /// A question about the operation: with its key and its credentials, without its body.
    pub(crate) fn question(&self, settings: &Settings, uri: Uri) -> Request<Bytes> {
        let question = self.clone().result_at(uri);
        let question = Self { key: self.key.clone(), ..question };
        let mut request = question.request(settings, 0, StoreTime::MAX);
        request.headers_mut().remove(IDEMPOTENCY_ATTEMPT);
        request.headers_mut().remove(X_REQUEST_DEADLINE);
        request
    }
}

/// The key as a header's value: bare if possible, in quotes if needed or asked for.
fn field(key: &Key, is_quoted: bool) -> HeaderValue {
    let text = key.as_str();
    let is_bare = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\,;".contains(&byte));
    let text = match is_bare && !is_quoted {
        true => text.to_owned(),
        false => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    };
    let mut value = HeaderValue::from_str(&text).expect("a key is printable ASCII");
    value.set_sensitive(true);
    value
}

const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
const X_REQUEST_DEADLINE: HeaderName = HeaderName::from_static("x-request-deadline");
const CONTENT_HEADERS: [HeaderName; 4] = [
    http::header::CONTENT_TYPE,
    http::header::CONTENT_LENGTH,
    http::header::CONTENT_ENCODING,
    http::header::TRANSFER_ENCODING,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRules;

    // R149, R152
    #[test]
    fn a_key_that_cannot_stand_bare_is_quoted_and_comes_back_the_same() {
        for text in ["order-17", "po 17", "a\"b", "a\\b", "a,b", "a;b=1"] {
            let key = Key::from_text(text, &KeyRules::default()).unwrap();
            for is_quoted in [false, true] {
                let value = field(&key, is_quoted);
                let read = Key::from_field_lines([value.as_bytes()], &KeyRules::default());
                assert_eq!(read.unwrap().unwrap().as_str(), text);
            }
        }
        let plain = Key::from_text("order-17", &KeyRules::default()).unwrap();
        assert_eq!(field(&plain, false), "order-17");
        assert_eq!(field(&plain, true), "\"order-17\"");
    }
}
