//! The media type of a body, with the parameters that say how its bytes are to be read.

use std::borrow::Cow;

use http::{HeaderMap, header};

use super::{Kind, Odd, lower_case, params, put};

/// A `Content-Type`, so that two of them can be compared.
#[derive(Debug)]
pub(crate) struct MediaType<'a> {
    /// As sent; more than one line joined.
    text: Cow<'a, [u8]>,
    /// In lower case, without the parameters.
    essence: Cow<'a, [u8]>,
    /// In the order of their names. Where readers may disagree about them, the text as sent counts.
    params: Result<Vec<(String, &'a [u8])>, Odd>,
    kind: Kind<'a>,
}

impl<'a> MediaType<'a> {
    /// `None` if the request has none.
    pub(crate) fn of(headers: &'a HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(header::CONTENT_TYPE).iter().map(|value| value.as_bytes());
        let first = lines.next()?;
        let Some(second) = lines.next() else {
            return Some(Self::parse(first));
        };
        // Nobody knows which of them a reader takes.
        let all: Vec<&[u8]> = [first, second].into_iter().chain(lines).collect();
        let (text, essence) = (all.join(&b'\n').into(), Cow::Borrowed(&b""[..]));
        Some(Self { text, essence, params: Err(Odd), kind: Kind::Opaque })
    }

    fn parse(text: &'a [u8]) -> Self {
        let (essence, params) = split(text);
        let essence = lower_case(essence);
        let params = params::parse(params).map(|mut params| {
            params.sort();
            params
        });
        let kind = Kind::named(&essence, text);
        Self { text: text.into(), essence, params, kind }
    }

    /// How the body is read by its meaning.
    pub(crate) fn kind(&self) -> Result<Kind<'a>, Odd> {
        self.params.as_ref().map(|_| self.kind).map_err(|odd| *odd)
    }

    /// Appends everything that says how the bytes are read, but for the boundary where it does not count.
    pub(crate) fn put(&self, out: &mut Vec<u8>, counts_boundary: bool) {
        let Ok(params) = &self.params else {
            out.push(AS_SENT);
            return put(out, self.text.trim_ascii());
        };
        let has_charset_only = CHARSET_ONLY.contains(&&*self.essence);
        out.push(PARSED);
        put(out, &self.essence);
        let counted = |(name, value): &&(String, &[u8])| match &**name {
            "boundary" => counts_boundary && !has_charset_only,
            "charset" => !(self.is_utf8_anyway() && is_utf8(value)),
            _ => !has_charset_only,
        };
        let counted = params.iter().filter(counted);
        out.extend_from_slice(&(counted.clone().count() as u64).to_be_bytes());
        for (name, value) in counted {
            put(out, name.as_bytes());
            match &**name {
                "charset" => put(out, &lower_case(value)),
                _ => put(out, value),
            }
        }
    }

    /// JSON and forms are UTF-8 without saying so.
    fn is_utf8_anyway(&self) -> bool {
        matches!(self.kind, Kind::Json | Kind::Form)
    }
}

/// The media type in lower case, without its parameters.
pub(super) fn essence(content_type: &[u8]) -> Cow<'_, [u8]> {
    lower_case(split(content_type).0)
}

/// The type, and its parameters. A semicolon at the end is nothing, RFC 9110 section 5.6.6.
pub(super) fn split(content_type: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b';', content_type).unwrap_or(content_type.len());
    let (essence, params) = content_type.split_at(end);
    let params = params.trim_ascii_end();
    (essence.trim_ascii(), params.strip_suffix(b";").unwrap_or(params))
}

fn is_utf8(charset: &[u8]) -> bool {
    [&b"utf-8"[..], b"utf8"].iter().any(|name| charset.eq_ignore_ascii_case(name))
}

/// No other parameter has a meaning there: RFC 8259 section 11, and the URL standard.
const CHARSET_ONLY: [&[u8]; 2] = [b"application/json", b"application/x-www-form-urlencoded"];
// Hashed: a number is never given another meaning. 0 is no media type at all.
const PARSED: u8 = 1;
const AS_SENT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(lines: &[&str], counts_boundary: bool) -> Vec<u8> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::CONTENT_TYPE, line.parse().unwrap());
        }
        let mut out = Vec::new();
        MediaType::of(&headers).unwrap().put(&mut out, counts_boundary);
        out
    }

    #[test]
    fn spellings_of_one_media_type_are_equal() {
        let same = [
            ["application/json", "Application/JSON ; Charset=\"UTF-8\""],
            ["application/json", "application/json;"],
            ["application/json", "application/json ;x=y"],
            [
                "application/x-www-form-urlencoded",
                "application/x-www-form-urlencoded; charset=utf8",
            ],
            ["text/plain; a=1; charset=latin1", "text/plain;charset=Latin1;A=1"],
        ];
        for [one, two] in same {
            assert_eq!(bytes(&[one], true), bytes(&[two], true), "{one} {two}");
        }
    }

    #[test]
    fn everything_that_says_how_bytes_are_read_counts() {
        let others: [&[&str]; 13] = [
            &["text/plain"],
            &["text/plain; charset=utf-8"],
            &["text/plain; charset=utf-16"],
            &["application/json"],
            &["application/json; charset=latin1"],
            &["application/vnd.shop+json"],
            &["application/vnd.shop+json; version=2"],
            &["application/soap+xml; action=Charge"],
            &["application/soap+xml; action=Refund"],
            &["text/plain; charset"],
            &["text/plain; charset=a; charset=b"],
            &["text/plain", "text/html"],
            &["text/html", "text/plain"],
        ];
        for (at, one) in others.iter().enumerate() {
            for two in &others[at + 1..] {
                assert_ne!(bytes(one, true), bytes(two, true), "{one:?} {two:?}");
            }
        }
    }

    /// RFC 2231 and RFC 5987: some readers take `charset*` for the charset, and some for a name like any other.
    #[test]
    fn an_extended_parameter_makes_the_media_type_unreadable() {
        let plain = bytes(&["application/json"], true);
        for name in ["charset*", "CHARSET*", "charset*0", "charset*0*", "boundary*"] {
            let line = format!("application/json; {name}=utf-16''x");
            assert_ne!(bytes(&[&line], true), plain, "{name}");
            assert_eq!(MediaType::parse(line.as_bytes()).kind().unwrap_err(), Odd, "{name}");
        }
    }

    #[test]
    fn a_boundary_counts_unless_the_parts_are_compared() {
        let [one, two] =
            ["a", "b"].map(|boundary| format!("multipart/form-data; boundary={boundary}"));
        assert_ne!(bytes(&[&one], true), bytes(&[&two], true));
        assert_eq!(bytes(&[&one], false), bytes(&[&two], false));
    }
}
