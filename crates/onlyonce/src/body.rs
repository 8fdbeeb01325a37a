//! What bodies mean: the kinds that can be compared by meaning, and those that cannot.

pub(crate) mod form;
pub(crate) mod json;
mod media_type;
pub(crate) mod multipart;
mod params;

use std::borrow::Cow;

pub(crate) use media_type::MediaType;

/// Nothing but the bytes can be said about a body: it is malformed, ambiguous or beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Odd;

/// How a body is read, by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    Json,
    Form,
    /// Form data in parts; `None` where the media type has no usable boundary.
    Multipart(Option<&'a [u8]>),
    Opaque,
}

impl<'a> Kind<'a> {
    pub(crate) fn of(content_type: &'a [u8]) -> Self {
        Self::named(&media_type::essence(content_type), content_type)
    }

    /// The kind of the media type with this `essence`; `content_type` has its parameters too.
    fn named(essence: &[u8], content_type: &'a [u8]) -> Self {
        match essence {
            b"application/json" => Self::Json,
            other if OTHER_JSON.contains(&other) => Self::Json,
            b"application/x-www-form-urlencoded" => Self::Form,
            b"multipart/form-data" => Self::Multipart(boundary(content_type)),
            other if other.ends_with(b"+json") && other.contains(&b'/') => Self::Json,
            _ => Self::Opaque,
        }
    }
}

/// `application/grpc`, `application/grpc+proto` and their like. gRPC-Web is another protocol.
#[cfg(any(feature = "tower", feature = "client"))]
pub(crate) fn is_grpc_type(media_type: &[u8]) -> bool {
    let (name, rest) = media_type.split_at(media_type.len().min(GRPC.len()));
    name.eq_ignore_ascii_case(GRPC)
        && matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'))
}

/// The content coding in lower case; `None` if the body is sent as it is.
pub(crate) fn coding(content_encoding: Option<&[u8]>) -> Option<Cow<'_, [u8]>> {
    let coding = lower_case(content_encoding?.trim_ascii());
    (!matches!(&*coding, b"" | b"identity")).then_some(coding)
}

/// Appends a part so that nothing after it can be taken for its end.
pub(crate) fn put(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&(part.len() as u64).to_be_bytes());
    out.extend_from_slice(part);
}

/// Appends all of these parts, and that there are no more.
pub(crate) fn put_all<'a>(out: &mut Vec<u8>, parts: impl Iterator<Item = &'a [u8]>) {
    parts.for_each(|part| put_optional(out, Some(part)));
    put_optional(out, None);
}

/// As [`put`], for a part that may be absent, which is not the same as empty.
pub(crate) fn put_optional(out: &mut Vec<u8>, part: Option<&[u8]>) {
    out.push(u8::from(part.is_some()));
    if let Some(part) = part {
        put(out, part);
    }
}

fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let params = params::parse(media_type::split(content_type).1).ok()?;
    let (_, boundary) = params.into_iter().find(|(name, _)| name == "boundary")?;
    (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()).then_some(boundary)
}

fn lower_case(text: &[u8]) -> Cow<'_, [u8]> {
    // Without an early end, so that the compiler compares many bytes at once.
    match text.iter().fold(false, |found, byte| found | byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}

/// Names that JSON had, and that clients of JSON-RPC send.
const OTHER_JSON: [&[u8]; 5] = [
    b"text/json",
    b"text/x-json",
    b"application/x-json",
    b"application/json-rpc",
    b"application/jsonrequest",
];
#[cfg(any(feature = "tower", feature = "client"))]
const GRPC: &[u8] = b"application/grpc";
/// RFC 2046, section 5.1.1.
const BOUNDARY_BYTES_MAX: usize = 70;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_media_type_tells_the_kind() {
        let cases: [(&[u8], Kind<'_>); 15] = [
            (b"application/json", Kind::Json),
            (b"text/json; charset=utf-8", Kind::Json),
            (b"application/json-rpc", Kind::Json),
            (b"Application/JSON ; charset=utf-8", Kind::Json),
            (b"application/vnd.api+json", Kind::Json),
            (b"application/x-www-form-urlencoded", Kind::Form),
            (b"multipart/form-data; boundary=b", Kind::Multipart(Some(b"b"))),
            (b"multipart/form-data; boundary=b; ", Kind::Multipart(Some(b"b"))),
            (
                b"multipart/form-data; charset=utf-8; Boundary=\"a b\"",
                Kind::Multipart(Some(b"a b")),
            ),
            (b"multipart/form-data", Kind::Multipart(None)),
            (b"multipart/form-data; boundary=", Kind::Multipart(None)),
            (b"multipart/form-data; boundary=a; boundary=b", Kind::Multipart(None)),
            (b"text/plain", Kind::Opaque),
            (b"+json", Kind::Opaque),
            (b"", Kind::Opaque),
        ];
        for (content_type, kind) in cases {
            assert_eq!(Kind::of(content_type), kind, "{}", content_type.escape_ascii());
        }
    }

    #[cfg(feature = "tower")]
    #[test]
    fn grpc_web_is_no_grpc() {
        let own = [
            "application/grpc",
            "application/grpc+proto",
            "Application/gRPC;a=b",
            "application/grpc ; a=b",
        ];
        assert!(own.iter().all(|name| is_grpc_type(name.as_bytes())));
        let web =
            ["application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"];
        for name in web.iter().chain(&["application/grpcx", "application/json", ""]) {
            assert!(!is_grpc_type(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn identity_is_no_coding() {
        assert_eq!(coding(None), None);
        assert_eq!(coding(Some(b" Identity ")), None);
        assert_eq!(coding(Some(b"GZIP")).as_deref(), Some(&b"gzip"[..]));
    }
}
