//! Answers of HTTP/1.1, read from bytes.

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case, in their order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Bytes of it on the wire.
    pub(crate) length: usize,
}

impl Answer {
    /// The answer, if these bytes have all of it. `is_end` says that no more will come.
    pub(crate) fn parse(bytes: &[u8], is_end: bool) -> Option<Self> {
        let mut start = 0;
        loop {
            let end = start + find(&bytes[start..], b"\r\n\r\n")? + 4;
            let head = String::from_utf8_lossy(&bytes[start..end]).into_owned();
            let mut lines = head.split("\r\n");
            let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
            if (100..200).contains(&status) {
                start = end;
                continue;
            }
            let headers = lines.filter_map(|line| line.split_once(':'));
            let headers: Vec<_> = headers
                .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            let (body, used) = body_of(status, &headers, &bytes[end..], is_end)?;
            return Some(Self { status, headers, body, length: end - start + used });
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Status and the start of the body.
    pub(crate) fn brief(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown: String = text.chars().take(BRIEF_CHARS).collect();
        let dots = if shown.len() < text.len() { "…" } else { "" };
        format!("{} {shown}{dots}", self.status).trim_end().to_owned()
    }
}

/// The body, and how many bytes it took.
fn body_of(
    status: u16,
    headers: &[(String, String)],
    bytes: &[u8],
    is_end: bool,
) -> Option<(Vec<u8>, usize)> {
    let header =
        |name: &str| headers.iter().find(|(found, _)| found == name).map(|(_, value)| value);
    if status == 204 || status == 304 {
        return Some((Vec::new(), 0));
    }
    if header("transfer-encoding")
        .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"))
    {
        return unchunked(bytes);
    }
    match header("content-length").and_then(|value| value.parse::<usize>().ok()) {
        Some(length) => Some((bytes.get(..length)?.to_vec(), length)),
        None => is_end.then(|| (bytes.to_vec(), bytes.len())),
    }
}

fn unchunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = find(&bytes[at..], b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        at += line + 2;
        if size == 0 {
            // Trailers end with an empty line, which may be the first one.
            let rest = &bytes[at..];
            let end = if rest.starts_with(b"\r\n") { 2 } else { find(rest, b"\r\n\r\n")? + 4 };
            return Some((body, at + end));
        }
        body.extend_from_slice(bytes.get(at..at.checked_add(size)?)?);
        at += size + 2;
        if at > bytes.len() {
            return None;
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

/// How much of a body is shown in a line.
const BRIEF_CHARS: usize = 72;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_whole_or_not_at_all() {
        let whole =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";
        let answer = Answer::parse(whole, false).unwrap();
        assert_eq!((answer.status, answer.body.as_slice(), answer.length), (201, &b"ok"[..], 45));
        for end in 0..whole.len() {
            assert!(Answer::parse(&whole[..end], true).is_none(), "{end}");
        }
    }

    #[test]
    fn chunks_are_joined() {
        let bytes =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
        assert_eq!(Answer::parse(bytes, false).unwrap().body, b"abc");
        for end in 0..bytes.len() {
            assert!(Answer::parse(&bytes[..end], true).is_none(), "{end}");
        }
    }

    #[test]
    fn an_answer_without_a_length_lasts_until_the_connection_ends() {
        let bytes = b"HTTP/1.0 200 OK\r\n\r\nabc";
        assert!(Answer::parse(bytes, false).is_none());
        assert_eq!(Answer::parse(bytes, true).unwrap().body, b"abc");
    }
}
