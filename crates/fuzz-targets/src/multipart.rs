//! Form data in parts: whatever the boundary, the same parts have the same canonical bytes, and other parts have others.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use onlyonce::fingerprint::{Fingerprint, FingerprintRules, Subject};
use onlyonce::fuzzing;

/// The data are a boundary, a line feed and a body.
pub fn target(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (boundary, body) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    whole_fingerprint(boundary, body);
    if boundary.is_empty() || boundary.len() > 70 {
        return;
    }
    let Some(canonical) = fuzzing::multipart(body, boundary) else { return };
    let mut rest = canonical.as_slice();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        parts.push(Part::read(&mut rest).expect("canonical bytes lead back to parts"));
    }
    assert_eq!(parts.len(), naive_count(body, boundary), "another reader sees other parts");
    let Some(other) = unused_boundary(body) else { return };
    let written = written(&parts, &other);
    assert_eq!(fuzzing::multipart(&written, &other).as_ref(), Some(&canonical), "spelt anew");
    for at in 0..parts.len() {
        let mut changed = parts.clone();
        changed[at].content.push(b'x');
        let changed = self::written(&changed, &other);
        assert_ne!(fuzzing::multipart(&changed, &other).as_ref(), Some(&canonical), "part {at}");
    }
}

/// Everything that looks at a media type and a body, whatever they are.
fn whole_fingerprint(boundary: &[u8], body: &[u8]) {
    let content_type = [&b"multipart/form-data; boundary="[..], boundary].concat();
    let Ok(content_type) = HeaderValue::from_bytes(&content_type) else { return };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
    let subject = Subject { method: "POST", path: "/", query: None, headers: &headers, body };
    let fingerprint = Fingerprint::of(&FingerprintRules::default(), &subject);
    assert!(fingerprint.matches(&Fingerprint::of(&FingerprintRules::default(), &subject)));
}

#[derive(Clone, Debug)]
struct Part {
    name: Vec<u8>,
    filename: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    content: Vec<u8>,
}

impl Part {
    fn read(rest: &mut &[u8]) -> Option<Self> {
        let name = bytes(rest)?;
        let filename = match rest.split_off_first()? {
            0 => None,
            _ => Some(bytes(rest)?),
        };
        let (block, mut headers) = (bytes(rest)?, Vec::new());
        let mut block = block.as_slice();
        while !block.is_empty() {
            headers.push((bytes(&mut block)?, bytes(&mut block)?));
        }
        Some(Self { name, filename, headers, content: bytes(rest)? })
    }
}

/// Bytes after their length.
fn bytes(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(u64::from_be_bytes(*rest.first_chunk()?)).ok()?;
    let taken = rest.get(8..8_usize.checked_add(length)?)?.to_vec();
    *rest = &rest[8 + length..];
    Some(taken)
}

fn written(parts: &[Part], boundary: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend([b"--", boundary, b"\r\n"].concat());
        // Headers in another order than the canonical one, and their names in another case.
        for (name, value) in part.headers.iter().rev() {
            out.extend([&name.to_ascii_uppercase(), &b":\t"[..], value, b" \r\n"].concat());
        }
        let filename = part.filename.as_deref();
        out.extend([b"content-disposition: Form-Data; NAME=\"", &part.name[..], b"\""].concat());
        out.extend(
            filename.map(|name| [b" ;filename=\"", name, b"\""].concat()).unwrap_or_default(),
        );
        out.extend([b"\r\n\r\n", &part.content[..], b"\r\n"].concat());
    }
    out.extend([b"--", boundary, b"--\r\n"].concat());
    out
}

/// How often the boundary stands at the beginning of a line, less the last.
fn naive_count(body: &[u8], boundary: &[u8]) -> usize {
    let delimiter = [b"\r\n--", boundary].concat();
    let body = [b"\r\n", body].concat();
    let (mut count, mut at) = (0, 0);
    while at + delimiter.len() <= body.len() {
        let is_here = body[at..].starts_with(&delimiter);
        count += usize::from(is_here);
        at += if is_here { delimiter.len() } else { 1 };
    }
    count - 1
}

fn unused_boundary(body: &[u8]) -> Option<Vec<u8>> {
    let candidates = (0..8).map(|number| format!("fresh-{number}").into_bytes());
    let is_unused = |boundary: &Vec<u8>| !body.windows(boundary.len()).any(|part| part == boundary);
    candidates.into_iter().find(is_unused)
}
