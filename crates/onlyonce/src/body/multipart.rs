//! Form data in parts, whatever boundary lies between them.

use http::HeaderName;
use memchr::memmem;

use super::{Odd, params, put, put_optional};

/// The parts in order: name, file name, the other headers and the content of each.
pub(crate) fn canonical(body: &[u8], boundary: Option<&[u8]>) -> Result<Vec<u8>, Odd> {
    let mut out = Vec::with_capacity(body.len());
    for part in parts(body, boundary)? {
        put(&mut out, part.name);
        put_optional(&mut out, part.filename);
        put(&mut out, &part.other_headers());
        put(&mut out, part.content);
    }
    Ok(out)
}

/// The contents of every part with this name that is no file, in order.
pub(crate) fn values<'a>(
    body: &'a [u8],
    boundary: Option<&[u8]>,
    name: &str,
) -> Result<Vec<&'a [u8]>, Odd> {
    let named = |part: &Part<'_>| part.name == name.as_bytes() && part.filename.is_none();
    Ok(parts(body, boundary)?.into_iter().filter(named).map(|part| part.content).collect())
}

struct Part<'a> {
    name: &'a [u8],
    filename: Option<&'a [u8]>,
    headers: Vec<(HeaderName, &'a [u8])>,
    content: &'a [u8],
}

impl Part<'_> {
    fn other_headers(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in &self.headers {
            put(&mut out, name.as_str().as_bytes());
            put(&mut out, value);
        }
        out
    }
}

/// A preamble, an epilogue or space after a boundary is odd: readers treat them differently.
fn parts<'a>(body: &'a [u8], boundary: Option<&[u8]>) -> Result<Vec<Part<'a>>, Odd> {
    let delimiter = [b"\r\n--", boundary.ok_or(Odd)?].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut parts = Vec::new();
    let mut rest = body.strip_prefix(&delimiter[2..]).ok_or(Odd)?;
    while !matches!(rest, b"--" | b"--\r\n") {
        rest = rest.strip_prefix(b"\r\n").ok_or(Odd)?;
        // Another delimiter at once: to some readers a part without anything in it, to others a field with that name.
        if rest.starts_with(&delimiter[2..]) {
            return Err(Odd);
        }
        let end = finder.find(rest).ok_or(Odd)?;
        parts.push(part(&rest[..end])?);
        rest = &rest[end + delimiter.len()..];
    }
    Ok(parts)
}

fn part(bytes: &[u8]) -> Result<Part<'_>, Odd> {
    let end = memmem::find(bytes, b"\r\n\r\n").ok_or(Odd)?;
    let mut headers = headers(&bytes[..end])?;
    let disposition =
        headers.iter().position(|(name, _)| *name == http::header::CONTENT_DISPOSITION);
    let (_, disposition) = headers.remove(disposition.ok_or(Odd)?);
    let (name, filename) = names(disposition)?;
    Ok(Part { name, filename, headers, content: &bytes[end + 4..] })
}

/// Sorted by name; a name that comes twice is odd.
fn headers(block: &[u8]) -> Result<Vec<(HeaderName, &[u8])>, Odd> {
    let mut headers = lines(block).map(header).collect::<Result<Vec<_>, Odd>>()?;
    headers.sort_by(|one, two| one.0.as_str().cmp(two.0.as_str()));
    match headers.windows(2).any(|two| two[0].0 == two[1].0) {
        true => Err(Odd),
        false => Ok(headers),
    }
}

fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    let ends = memmem::find_iter(block, b"\r\n").chain([block.len()]);
    ends.map(move |end| &block[std::mem::replace(&mut start, end + 2)..end])
}

fn header(line: &[u8]) -> Result<(HeaderName, &[u8]), Odd> {
    let colon = memchr::memchr(b':', line).ok_or(Odd)?;
    let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| Odd)?;
    Ok((name, line[colon + 1..].trim_ascii()))
}

fn names(disposition: &[u8]) -> Result<(&[u8], Option<&[u8]>), Odd> {
    let end = memchr::memchr(b';', disposition).ok_or(Odd)?;
    if !disposition[..end].trim_ascii().eq_ignore_ascii_case(b"form-data") {
        return Err(Odd);
    }
    let (mut name, mut filename) = (None, None);
    for (param, value) in params::parse(&disposition[end..])? {
        match &*param {
            "name" => name = Some(value),
            "filename" => filename = Some(value),
            _ => return Err(Odd),
        }
    }
    Ok((name.ok_or(Odd)?, filename))
}

#[cfg(test)]
mod tests;
