//! RFC 9112 by the letter, and less: what a recipient may repair is refused.

use super::Seen;

pub(super) struct Whole {
    pub(super) request: Seen,
    pub(super) ends_at: usize,
}

/// The whole requests at the beginning of `stream`.
pub(super) fn requests(stream: &[u8]) -> Vec<Whole> {
    let (mut found, mut reader) = (Vec::new(), Reader { stream, at: 0 });
    while let Some(request) = reader.request() {
        found.push(Whole { request, ends_at: reader.at });
    }
    found
}

struct Reader<'a> {
    stream: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.stream[self.at..];
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        self.at += end + 2;
        let line = &rest[..end];
        (!line.contains(&b'\r') && !line.contains(&b'\n')).then_some(line)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.stream.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn request(&mut self) -> Option<Seen> {
        let mut line = self.line()?;
        while line.is_empty() {
            line = self.line()?;
        }
        let (method, path) = request_line(line)?;
        let (mut length, mut is_chunked) = (None, false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = header(line)?;
            match name.as_str() {
                "content-length" if length.is_some() => return None,
                "content-length" => length = Some(decimal(value)?),
                "transfer-encoding" if is_chunked || !value.eq_ignore_ascii_case(b"chunked") => {
                    return None;
                }
                "transfer-encoding" => is_chunked = true,
                _ => {}
            }
        }
        let body = match (length, is_chunked) {
            (Some(_), true) => return None,
            (None, true) => self.chunks()?,
            (length, false) => self.take(length.unwrap_or(0))?.to_vec(),
        };
        Some(Seen { method, path, body })
    }

    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
            let is_size = !size.is_empty() && size.iter().all(u8::is_ascii_hexdigit);
            let size = std::str::from_utf8(size).ok().filter(|_| is_size)?;
            let size = usize::from_str_radix(size, 16).ok()?;
            if size == 0 {
                break;
            }
            body.extend(self.take(size)?);
            if self.take(2)? != b"\r\n" {
                return None;
            }
        }
        while !self.line()?.is_empty() {}
        Some(body)
    }
}

fn request_line(line: &[u8]) -> Option<(String, String)> {
    let [method, target, version] = line.split(|byte| *byte == b' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let is_version = matches!(version, b"HTTP/1.1" | b"HTTP/1.0");
    let is_target = !target.is_empty() && !target.iter().any(|byte| byte.is_ascii_control());
    if !is_version || !is_target || method.is_empty() || !method.iter().all(|byte| is_token(*byte))
    {
        return None;
    }
    let path = if target[0] == b'/' { target.split(|byte| *byte == b'#').next()? } else { b"" };
    Some((String::from_utf8(method.into()).ok()?, String::from_utf8_lossy(path).into_owned()))
}

fn header(line: &[u8]) -> Option<(String, &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let is_name = !name.is_empty() && name.iter().all(|byte| is_token(*byte));
    let is_value = !value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f);
    (is_name && is_value).then(|| (String::from_utf8_lossy(name).to_ascii_lowercase(), value))
}

fn decimal(value: &[u8]) -> Option<usize> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
