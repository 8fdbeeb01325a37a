//! Spellings: paths that a service may take for one another.
//!
//! nginx merges slashes, Express ignores letter case and a final slash, Spring cuts `;parameters` and extensions, ASP.NET
//! ignores case and what Windows trims; proxies decode once, and services behind them again.

use std::borrow::Cow;
use std::collections::BTreeSet;

#[cfg(feature = "tower")]
use sha2::{Digest, Sha256};

#[cfg(feature = "tower")]
use super::{Secret, normal_path};
use crate::hex;

/// The path as ids have it: one text for every spelling that a service may read alike.
///
/// Percent-encoding is decoded, twice. `\` is a slash. Empty segments and dot segments are resolved. Of a segment its
/// `;parameters` do not count, nor do dots and white space at its end; of the path neither letter case, a final slash, nor
/// an extension that frameworks take for a format (`.json`, `.xml`, …).
///
/// ```
/// use onlyonce::scope::folded_path;
///
/// assert_eq!(folded_path("/v1/charges"), "/v1/charges");
/// for spelling in ["/v1/Charges/", "/v1/charges;a=b", "/v1/%63harges.json", "//v1/./charges%20"] {
///     assert_eq!(folded_path(spelling), "/v1/charges");
/// }
/// assert_eq!(folded_path("/domains/example.com"), "/domains/example.com");
/// ```
pub fn folded_path(path: &str) -> Cow<'_, str> {
    match is_settled_path(path) || !path.starts_with('/') {
        true => Cow::Borrowed(path),
        // What a router left of a path follows it after a space: see `http/client_uri.rs`.
        false => path.split(' ').map(folded).collect::<Vec<_>>().join(" ").into(),
    }
}

/// Whether the path is in the plain form, which every service divides into the same segments: without empty and dot
/// segments, without an encoded slash (`%2F`), a backslash, NUL or another control character, encoded once or twice. One
/// slash at the end is plain.
///
/// ```
/// use onlyonce::scope::is_plain_path;
///
/// assert!(is_plain_path("/v1/Charges/") && is_plain_path("/caf%C3%A9"));
/// for odd in ["//v1", "/v1/../x", "/a%2Fb", "/a%252Fb", "/a%5Cb", "/a\\b", "/a%00", "/a/%2e"] {
///     assert!(!is_plain_path(odd), "{odd}");
/// }
/// ```
pub fn is_plain_path(path: &str) -> bool {
    is_settled_path(path) || path.split(' ').all(is_plain)
}

/// Whether the path has no other spelling that its bytes tell of: it is already what [`folded_path`] makes of it, and has
/// nothing in it that could be read in two ways. One pass; most paths are.
pub fn is_settled_path(path: &str) -> bool {
    let (mut before, mut has_dot) = (b' ', false);
    for byte in path.bytes() {
        match byte {
            b'/' if matches!(before, b'/' | b'.') => return false,
            b'/' => has_dot = false,
            b'.' if before == b'/' => return false,
            b'.' => has_dot = true,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b'@' | b'=' | b'+' => {}
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b',' | b':' => {}
            _ => return false,
        }
        before = byte;
    }
    !has_dot && (before != b'/' || path.len() == 1)
}

/// The path as services may read it, percent-encoding decoded or not; as sent it is the first. `None` where there are more
/// than can be looked at.
///
/// ```
/// use onlyonce::scope::readings;
///
/// let read = readings("/public/..%2Fcharges").unwrap_or_default();
/// assert!(read.iter().any(|path| path == "/charges"));
/// ```
pub fn readings(path: &str) -> Option<Vec<String>> {
    let first = path.as_bytes().to_vec();
    let (mut found, mut seen) = (vec![(first.clone(), 0)], BTreeSet::from([first]));
    let mut at = 0;
    while let Some((path, decoded)) = found.get(at).cloned() {
        at += 1;
        let once_more = (decoded < DECODED_MAX).then(|| (unescaped(&path), decoded + 1));
        let others = RULES.iter().map(|rule| (rule(&path), decoded));
        for (other, decoded) in once_more.into_iter().chain(others) {
            if seen.insert(other.clone()) {
                found.push((other, decoded));
            }
        }
        if found.len() > READINGS_MAX {
            return None;
        }
    }
    let text = |(path, _): (Vec<u8>, u8)| String::from_utf8_lossy(&path).into_owned();
    Some(found.into_iter().map(text).collect())
}

/// A digest of how the path is spelled, which is zero for a path that is as [`folded_path`] has it.
#[cfg(feature = "tower")]
pub(crate) fn spelling(secret: Option<&Secret>, path: &str) -> Spelling {
    let normal = normal_path(path);
    if folded_path(&normal) == normal {
        return Spelling::default();
    }
    let plain: [u8; 32] =
        Sha256::new_with_prefix(b"onlyonce spelling 1\0").chain_update(&*normal).finalize().into();
    let digest = secret.map_or(plain, |secret| secret.keyed("spelling", &plain));
    // Never zero.
    [digest[0], digest[1], digest[2], digest[3] | 1]
}

/// Tells spellings of one path apart. Two that are taken for one get a replay, never an execution.
#[cfg(feature = "tower")]
pub(crate) type Spelling = [u8; 4];

fn folded(path: &str) -> String {
    let decoded = unescaped(&unescaped(path.as_bytes()));
    let path = merged(&without_parameters(&slashed(&cut(&decoded))));
    let path = merged(&trimmed(&resolved(&path)));
    let path = without_end(&path, |byte| byte == b'/');
    let path = without_format(path);
    let lower = match str::from_utf8(path) {
        Ok(text) => lower_case(text).into_bytes(),
        Err(_) => path.to_ascii_lowercase(),
    };
    if lower.is_empty() { "/".to_owned() } else { escaped(&lower) }
}

/// Letters that are one in another case are one here.
pub(super) fn lower_case(text: &str) -> String {
    match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect(),
    }
}

fn is_plain(path: &str) -> bool {
    let sent = path.as_bytes();
    let once = unescaped(sent);
    let twice = unescaped(&once);
    let slashes = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
    [sent, &once, &twice].into_iter().all(|path| {
        let is_odd = |byte: &u8| byte.is_ascii_control() || *byte == b'\\';
        !path.iter().any(is_odd) && slashes(path) == slashes(sent) && has_plain_segments(path)
    })
}

fn has_plain_segments(path: &[u8]) -> bool {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let is_named = |segment: &[u8]| !trimmed_segment(before(segment, b";")).is_empty();
    let segments = path.strip_suffix(b"/").unwrap_or(path);
    path.is_empty() || segments.split(|byte| *byte == b'/').all(is_named)
}

type Rule = fn(&[u8]) -> Vec<u8>;
/// What services do to a path, in whatever order.
const RULES: [Rule; 6] = [cut, slashed, without_parameters, trimmed, merged, resolved];

/// Ends at what is no path any more: a query or a fragment that was encoded, or the NUL that ends a text in C.
fn cut(path: &[u8]) -> Vec<u8> {
    before(path, b"?#\0").to_vec()
}

fn slashed(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
}

fn without_parameters(path: &[u8]) -> Vec<u8> {
    each_segment(path, |segment| before(segment, b";"))
}

fn trimmed(path: &[u8]) -> Vec<u8> {
    each_segment(path, |segment| match segment {
        b"." | b".." => segment,
        _ => trimmed_segment(segment),
    })
}

fn merged(path: &[u8]) -> Vec<u8> {
    let mut merged = path.to_vec();
    merged.dedup_by(|one, other| (*one, *other) == (b'/', b'/'));
    merged
}

/// Without dot segments (RFC 3986, section 5.2.4).
fn resolved(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." => {}
            // The first one is what stands before the first slash.
            b".." => kept.truncate(kept.len().saturating_sub(1).max(1)),
            _ => kept.push(segment),
        }
        if is_last && matches!(segment, b"." | b"..") {
            kept.push(b"");
        }
    }
    kept.join(&b'/')
}

fn without_format(path: &[u8]) -> &[u8] {
    let Some(dot) = path.iter().rposition(|byte| matches!(byte, b'.' | b'/')) else { return path };
    let (stem, end) = path.split_at(dot);
    let is_format = FORMATS.iter().any(|format| end.eq_ignore_ascii_case(format));
    match is_format && !stem.ends_with(b"/") {
        true => without_end(stem, is_trimmed),
        false => path,
    }
}

fn each_segment<'a>(path: &'a [u8], part: impl Fn(&'a [u8]) -> &'a [u8]) -> Vec<u8> {
    path.split(|byte| *byte == b'/').map(part).collect::<Vec<_>>().join(&b'/')
}

fn trimmed_segment(segment: &[u8]) -> &[u8] {
    without_end(segment.trim_ascii_start(), is_trimmed)
}

fn is_trimmed(byte: u8) -> bool {
    byte == b'.' || byte.is_ascii_whitespace()
}

fn without_end(mut text: &[u8], is_cut: impl Fn(u8) -> bool) -> &[u8] {
    while let [rest @ .., last] = text
        && is_cut(*last)
    {
        text = rest;
    }
    text
}

/// What stands before the first of these bytes.
fn before<'a>(text: &'a [u8], ends: &[u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| ends.contains(byte)).unwrap_or(text.len());
    &text[..end]
}

fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::with_capacity(path.len()), path);
    while let [first, after @ ..] = rest {
        let escape = match rest {
            [b'%', high, low, ..] => hex::pair(*high, *low),
            _ => None,
        };
        decoded.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { &rest[3..] } else { after };
    }
    decoded
}

fn escaped(path: &[u8]) -> String {
    let text = path.iter().map(|byte| match byte {
        b'%' | ..=b' ' | 0x7f.. => format!("%{byte:02X}"),
        byte => char::from(*byte).to_string(),
    });
    text.collect()
}

/// What frameworks cut off the end of a path as the format of the answer. Not every word after a dot: `example.com` and
/// `example.org` are two names.
const FORMATS: [&[u8]; 18] = [
    b".json", b".jsonp", b".xml", b".html", b".htm", b".xhtml", b".txt", b".text", b".csv",
    b".yaml", b".yml", b".atom", b".rss", b".js", b".do", b".action", b".aspx", b".php",
];
const DECODED_MAX: u8 = 2;
const READINGS_MAX: usize = 64;

#[cfg(test)]
mod tests;
