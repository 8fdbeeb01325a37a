//! Looking for the key in the places that a policy names.

use std::borrow::Cow;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use sha2::{Digest, Sha256};

use super::{Key, KeyError, KeyRules, KeySource};
use crate::body::{self, Kind, form, json, multipart};
use crate::fingerprint::{Fingerprint, Pointer};
use crate::hex;

/// The key of a request, from whichever sources have one. `None` if none has.
///
/// 1. Where several sources have a key, they must agree.
/// 2. A JSON number counts as its text, `10.0` not being `10`; anything else than a string is an error.
/// 3. A field or parameter that comes twice is an error.
/// 4. Whatever the media type says, a body that begins like JSON is read as JSON, and a body that is no JSON as a form:
///    `curl -d` and a browser's `fetch` of a text send JSON under other names. A body that could hold a key and cannot be
///    read (malformed, doubled member names, a content coding) is an error, never a body without a key.
/// 5. The body's key is a digest of the body, the fingerprint's the canonical digest, in hexadecimal. They are taken, in
///    this order, only where no other source has a key, and are not held to `rules`.
///
/// Without `body` or `fingerprint` the sources that need them count as having no key, so pass them as
/// soon as any [`needs_body`](KeySource::needs_body).
///
/// ```
/// use onlyonce::key::{KeyRules, KeySource, find};
///
/// let request = http::Request::post("/t").header("Idempotency-Key", "\"k1\"").body(())?;
/// let (head, ()) = request.into_parts();
/// let key = find(&[KeySource::default()], &head, None, None, &KeyRules::default())?;
/// assert_eq!(key.expect("there is one").as_str(), "k1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find(
    sources: &[KeySource],
    head: &Parts,
    body: Option<&[u8]>,
    fingerprint: Option<&Fingerprint>,
    rules: &KeyRules,
) -> Result<Option<Key>, KeyError> {
    let mut found = None;
    for source in sources {
        let key = in_source(source, head, body, rules)?;
        found = agreed(found, key)?;
    }
    let found = found.or_else(|| of_body(sources, body?));
    let fallback = fingerprint.filter(|_| sources.contains(&KeySource::Fingerprint));
    Ok(found.or_else(|| fallback.map(of_fingerprint)))
}

fn in_source(
    source: &KeySource,
    head: &Parts,
    body: Option<&[u8]>,
    rules: &KeyRules,
) -> Result<Option<Key>, KeyError> {
    let text = match source {
        KeySource::Header(name) => {
            let lines = head.headers.get_all(name).iter().map(|value| value.as_bytes());
            return Key::from_field_lines(lines, rules);
        }
        KeySource::Json(pointer) => in_json(head, body, pointer)?,
        KeySource::Query(name) => in_query(head, name)?,
        KeySource::Form(name) => in_form(head, body, name)?,
        KeySource::CloudEvent => return of_cloud_event(head, body),
        KeySource::Body { .. } | KeySource::Fingerprint => None,
    };
    text.map(|text| Key::from_text(&text, rules)).transpose()
}

/// A body that says that it is JSON, or begins like it.
fn in_json(
    head: &Parts,
    body: Option<&[u8]>,
    pointer: &Pointer,
) -> Result<Option<String>, KeyError> {
    let kind = kind_of(head, body)?.unwrap_or(Kind::Json);
    let is_parts = matches!(kind, Kind::Multipart(_));
    let Some(body) = uncoded(head, body.filter(|_| !is_parts))? else {
        return Ok(None);
    };
    if kind != Kind::Json && !begins_like_json(body) {
        return Ok(None);
    }
    match json::find(body, pointer).map_err(|_| KeyError::Unreadable)? {
        None => Ok(None),
        Some(json::Found::Text(text)) => Ok(Some(text)),
        Some(json::Found::NotText) => Err(KeyError::NotText),
    }
}

/// Whether a reader that does not look at the media type would take the body for an object or an array of JSON.
fn begins_like_json(body: &[u8]) -> bool {
    // Also with the marks and the zeros of UTF-16, in which nothing can be found: it is refused.
    let is_before = |byte: &u8| {
        byte.is_ascii_whitespace() || matches!(byte, 0 | 0xef | 0xbb | 0xbf | 0xfe | 0xff)
    };
    body.iter().find(|byte| !is_before(byte)).is_some_and(|byte| matches!(byte, b'{' | b'['))
}

fn in_query(head: &Parts, name: &str) -> Result<Option<String>, KeyError> {
    let query = head.uri.query().unwrap_or_default();
    only(form::values(query.as_bytes(), name).map(|value| value.map(Cow::into_owned)))
}

/// The value of a field of a form.
#[cfg(feature = "tower")]
pub(crate) fn form_value(
    head: &Parts,
    body: &[u8],
    name: &str,
) -> Result<Option<String>, KeyError> {
    in_form(head, Some(body), name)
}

fn in_form(head: &Parts, body: Option<&[u8]>, name: &str) -> Result<Option<String>, KeyError> {
    let kind = kind_of(head, body)?.unwrap_or(Kind::Opaque);
    let Some(body) = uncoded(head, body.filter(|_| kind != Kind::Json))? else {
        return Ok(None);
    };
    match kind {
        Kind::Multipart(boundary) => {
            let values =
                multipart::values(body, boundary, name).map_err(|_| KeyError::Unreadable)?;
            only(values.into_iter().map(|value| Ok(value.to_vec())))
        }
        Kind::Form => only(form::values(body, name).map(|value| value.map(Cow::into_owned))),
        Kind::Json => Ok(None),
        Kind::Opaque if begins_like_json(body) => Ok(None),
        // A form under another name: as text, or in parts that are called otherwise.
        Kind::Opaque if form::values(body, name).next().is_some() || names_part(body, name) => {
            Err(KeyError::Unreadable)
        }
        Kind::Opaque => Ok(None),
    }
}

/// Whether a part of the body has this name, as parts of a form say it.
fn names_part(body: &[u8], name: &str) -> bool {
    let quoted = memchr::memmem::find(body, format!("name=\"{name}\"").as_bytes());
    quoted.is_some() || memchr::memmem::find(body, format!("name={name}\r").as_bytes()).is_some()
}

/// The one value, as text.
fn only(
    mut values: impl Iterator<Item = Result<Vec<u8>, body::Odd>>,
) -> Result<Option<String>, KeyError> {
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(KeyError::Several);
    }
    let bytes = value.map_err(|_| KeyError::Unreadable)?;
    String::from_utf8(bytes).map(Some).map_err(|_| KeyError::NotPrintable)
}

/// The body, if there is any, unless it has a content coding.
fn uncoded<'a>(head: &Parts, body: Option<&'a [u8]>) -> Result<Option<&'a [u8]>, KeyError> {
    match body.filter(|body| !body.is_empty()) {
        Some(_) if body::coding(field(head, &CONTENT_ENCODING)).is_some() => {
            Err(KeyError::Unreadable)
        }
        body => Ok(body),
    }
}

/// What the body is. Of two media types, nobody knows which one its reader goes by.
fn kind_of<'a>(head: &'a Parts, body: Option<&[u8]>) -> Result<Option<Kind<'a>>, KeyError> {
    let has_body = body.is_some_and(|body| !body.is_empty());
    if has_body && head.headers.get_all(CONTENT_TYPE).iter().count() > 1 {
        return Err(KeyError::Unreadable);
    }
    Ok(field(head, &CONTENT_TYPE).map(Kind::of))
}

fn field<'a>(head: &'a Parts, name: &HeaderName) -> Option<&'a [u8]> {
    head.headers.get(name).map(|value| value.as_bytes())
}

fn agreed(first: Option<Key>, second: Option<Key>) -> Result<Option<Key>, KeyError> {
    match (first, second) {
        (Some(first), Some(second)) if first != second => Err(KeyError::Disagreement),
        (first, second) => Ok(first.or(second)),
    }
}

/// An id is unique only within its source. Either may be longer than a key, so the key is a digest of both.
fn of_cloud_event(head: &Parts, body: Option<&[u8]>) -> Result<Option<Key>, KeyError> {
    let media = field(head, &CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    let part = |name: &'static str| match media.starts_with(b"application/cloudevents") {
        true => {
            let pointer = format!("/{name}").parse().map_err(|_| KeyError::Unreadable)?;
            in_json(head, body, &pointer)
        }
        false => {
            let lines = head.headers.get_all(format!("ce-{name}")).into_iter();
            only(lines.map(|line| Ok(line.as_bytes().to_vec())))
        }
    };
    let (Some(source), Some(id)) = (part("source")?, part("id")?) else { return Ok(None) };
    if source.is_empty() || id.is_empty() {
        return Err(KeyError::Empty);
    }
    let mut text = b"onlyonce cloudevent key 1\0".to_vec();
    [source, id].iter().for_each(|part| body::put(&mut text, part.as_bytes()));
    Ok(Some(Key(hex::encode(&Sha256::digest(text)).into())))
}

/// The media type does not count: who sends a recorded request again could send it with another one.
fn of_body(sources: &[KeySource], body: &[u8]) -> Option<Key> {
    let without = sources.iter().find_map(|source| match source {
        KeySource::Body { without } => Some(without.as_slice()),
        _ => None,
    })?;
    let mut hash = Sha256::new_with_prefix(b"onlyonce body key 1\0");
    match json::canonical(body, &[], without) {
        Ok(values) => hash.update([&[1], values.as_slice()].concat()),
        Err(body::Odd) => hash.update([&[0], body].concat()),
    }
    Some(Key(hex::encode(&hash.finalize()).into()))
}

fn of_fingerprint(fingerprint: &Fingerprint) -> Key {
    Key(hex::encode(&fingerprint.canonical).into())
}

#[cfg(test)]
mod tests;
