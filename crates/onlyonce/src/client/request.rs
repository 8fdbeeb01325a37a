//! A request of the client: a value that has its key from the moment it is made.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Uri};
use serde::Serialize;

use super::Client;
use super::operation::Operation;
use super::outcome::{SendError, SendOutcome};
use super::transport::Transport;
use crate::key::{Key, KeyRules};

/// One operation, to be sent. The request has its key from the start: a request that is cloned and sent again is the
/// same operation. Make a request for each operation.
///
/// An error in building the request is returned by [`send`](Request::send), and then nothing was sent.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request<T> {
    client: Client<T>,
    operation: Operation,
    key: Key,
    /// The key that was given in a header.
    header_key: Option<Key>,
    /// Whether the key was given by [`Request::with_key`].
    has_own_key: bool,
    fault: Option<String>,
}

impl<T: Transport + Clone> Request<T> {
    pub(super) fn new(client: Client<T>, method: Method, url: &str) -> Self {
        let (uri, fault) = match parsed(url) {
            Ok(uri) => (uri, None),
            Err(fault) => (Uri::default(), Some(fault)),
        };
        let key = Key::random();
        let (headers, body) = (client.headers.clone(), Bytes::new());
        let is_shared = headers.contains_key(&client.retries.settings.key_header);
        let operation = Operation { key: Some(key.clone()), method, uri, headers, body };
        let mut request =
            Self { client, operation, key, header_key: None, has_own_key: false, fault };
        if is_shared {
            request.blame(
                "a key belongs to one operation: give it to each request, not to the client",
            );
        }
        request
    }

    /// The operation's key. Keep it where you keep the operation.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Gives the operation a key of your own: one that you kept, or [`Key::derive`].
    pub fn with_key(mut self, key: Key) -> Self {
        if self.header_key.as_ref().is_some_and(|given| *given != key) {
            self.blame(TWO_KEYS);
        }
        self.has_own_key = true;
        self.set_key(key);
        self
    }

    /// Adds a header. `Idempotency-Key` (or the header of
    /// [`with_key_header`](super::Retries::with_key_header)) is the operation's key, as if it were given to
    /// [`with_key`](Request::with_key): `"abc"` and `abc` are one key. Two different keys are an error.
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName>,
        V: TryInto<HeaderValue>,
    {
        match (name.try_into(), value.try_into()) {
            (Ok(name), Ok(value)) if name == self.client.retries.settings.key_header => {
                self.read_key(&value);
            }
            (Ok(name), Ok(value)) => drop(self.operation.headers.append(name, value)),
            (Err(_), _) => self.blame("the name of a header is not valid"),
            (_, Err(_)) => self.blame("the value of a header is not valid"),
        }
        self
    }

    /// The body as JSON. It is serialised once, so that every attempt sends the same bytes.
    pub fn json<B: Serialize + ?Sized>(mut self, body: &B) -> Self {
        match serde_json::to_vec(body) {
            Ok(bytes) => {
                let headers = &mut self.operation.headers;
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                self.operation.body = bytes.into();
            }
            Err(error) => self.blame(&format!("the body cannot be written as JSON: {error}")),
        }
        self
    }

    /// The body as it is.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.operation.body = body.into();
        self
    }

    /// Sends it, with the same key and the same bytes each time, until there is an outcome.
    pub async fn send(self) -> Result<SendOutcome, SendError> {
        self.send_and_tell(|_| Ok(())).await
    }

    /// Sends it like [`send`](Request::send), and passes the outcome to `tell` before the journal lets go of the
    /// operation. If the process dies before `tell` returns, or `tell` returns an error, a settled operation is still in
    /// the journal, and a resume gets its outcome again. So `tell` may be called more than once for one operation, in
    /// different runs.
    ///
    /// `tell` prints or stores the outcome, and returns `Ok` once that is done.
    pub async fn send_and_tell(
        self,
        tell: impl FnOnce(&Result<SendOutcome, SendError>) -> std::io::Result<()>,
    ) -> Result<SendOutcome, SendError> {
        match self.fault {
            Some(fault) => {
                let end = Err(SendError::Request(fault));
                drop(tell(&end));
                end
            }
            None => self.client.send(self.operation, tell).await,
        }
    }

    /// Takes the key from a header, by the default rules of a server.
    fn read_key(&mut self, value: &HeaderValue) {
        let key = match Key::from_field_lines([value.as_bytes()], &KeyRules::default()) {
            Ok(Some(key)) => key,
            Ok(None) => return,
            Err(error) => return self.blame(&format!("the key in a header is not valid: {error}")),
        };
        let is_given = self.has_own_key || self.header_key.is_some();
        if is_given && self.key != key {
            self.blame(TWO_KEYS);
        }
        self.header_key = Some(key.clone());
        self.set_key(key);
    }

    fn set_key(&mut self, key: Key) {
        self.operation.key = Some(key.clone());
        self.key = key;
    }

    fn blame(&mut self, fault: &str) {
        self.fault.get_or_insert_with(|| fault.to_owned());
    }
}

fn parsed(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|error| format!("`{url}` is not a URL: {error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            Err("the URL has credentials in it; send them in a header".to_owned())
        }
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(format!("`{url}` must begin with http:// or https://")),
    }
}

const TWO_KEYS: &str = "the request was given two different keys";
