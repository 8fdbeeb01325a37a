//! A request as bytes: each part with its length before it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::JournalError;
use crate::client::operation::Operation;
use crate::key::Key;

/// Method, URL, body, then names and values in turn.
pub(super) fn encode(operation: &Operation, keeps_body: bool) -> Vec<u8> {
    let uri = operation.uri.to_string();
    let body: &[u8] = if keeps_body { &operation.body } else { b"" };
    let mut bytes = Vec::new();
    let mut add = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    [operation.method.as_str().as_bytes(), uri.as_bytes(), body].into_iter().for_each(&mut add);
    for (name, value) in &operation.headers {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    bytes
}

pub(super) fn decode(key: Key, bytes: &[u8]) -> Result<Operation, JournalError> {
    operation(key, bytes).ok_or(JournalError::Damaged("a request in it cannot be read"))
}

fn operation(key: Key, mut bytes: &[u8]) -> Option<Operation> {
    let method = Method::from_bytes(part(&mut bytes)?).ok()?;
    let uri = Uri::try_from(part(&mut bytes)?).ok()?;
    let body = Bytes::copy_from_slice(part(&mut bytes)?);
    let mut headers = HeaderMap::new();
    while !bytes.is_empty() {
        let name = HeaderName::from_bytes(part(&mut bytes)?).ok()?;
        headers.append(name, HeaderValue::from_bytes(part(&mut bytes)?).ok()?);
    }
    Some(Operation { key: Some(key), method, uri, headers, body })
}

/// Method and URL without its query, of a request that was encoded.
pub(super) fn target(mut bytes: &[u8]) -> Option<String> {
    let method = Method::from_bytes(part(&mut bytes)?).ok()?;
    let uri = Uri::try_from(part(&mut bytes)?).ok()?;
    Some(format!("{method} {}://{}{}", uri.scheme_str()?, uri.authority()?, uri.path()))
}

fn part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
    let (part, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}
