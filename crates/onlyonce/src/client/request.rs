//! A request of the client: a value that has its key from the moment it is made.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Uri};
use serde::Serialize;

use super::Client;
use super::operation::Operation;
use super::outcome::{Outcome, SendError};
use super::transport::Transport;
use crate::key::Key;

/// One operation, to be sent. It has its key already: sent, dropped, cloned and sent again, it is the same
/// operation. Two operations are two requests.
///
/// What is wrong with it is told by [`send`](Request::send).
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request<T> {
    client: Client<T>,
    operation: Operation,
    key: Key,
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
        let operation = Operation { key: Some(key.clone()), method, uri, headers, body };
        Self { client, operation, key, fault }
    }

    /// The operation's key. Keep it where you keep the operation.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Gives the operation a key of your own: one that you kept, or [`Key::derive`].
    pub fn with_key(mut self, key: Key) -> Self {
        self.operation.key = Some(key.clone());
        self.key = key;
        self
    }

    /// Adds a header.
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName>,
        V: TryInto<HeaderValue>,
    {
        match (name.try_into(), value.try_into()) {
            (Ok(name), Ok(value)) => drop(self.operation.headers.append(name, value)),
            (Err(_), _) => self.blame("a header has a name that is none"),
            (_, Err(_)) => self.blame("a header has a value that cannot be sent"),
        }
        self
    }

    /// The body as JSON. It is written once, and so is the same bytes at every attempt.
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
    pub async fn send(self) -> Result<Outcome, SendError> {
        match self.fault {
            Some(fault) => Err(SendError::Request(fault)),
            None => self.client.send(self.operation).await,
        }
    }

    fn blame(&mut self, fault: &str) {
        self.fault.get_or_insert_with(|| fault.to_owned());
    }
}

fn parsed(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|error| format!("`{url}` is no URL: {error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            Err("the URL has credentials in it; send them in a header".to_owned())
        }
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(format!("`{url}` must begin with http:// or https://")),
    }
}
