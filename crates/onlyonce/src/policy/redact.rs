//! An answer without the values that are never stored.

use std::sync::Arc;

use http::HeaderName;
use http::header::{CONTENT_ENCODING, HeaderMap};

use crate::body::{self, json};
use crate::pointer::Pointer;
use crate::record::{Kept, NotKept, Response};

/// The answer with `null` at these places. Where that cannot be done, only its status is left: nobody can say what the rest
/// of it tells.
pub(super) fn redacted(answer: Arc<Response>, pointers: &[Pointer]) -> Arc<Response> {
    let Kept::Bytes { body, trailers } = &answer.body else {
        return answer;
    };
    if pointers.is_empty() || body.is_empty() {
        return answer;
    }
    let is_coded = codings(&answer.headers).next().is_some();
    match json::nulled(body, pointers) {
        Ok(None) if !is_coded => answer,
        Ok(Some(body)) if !is_coded => {
            let mut headers = answer.headers.clone();
            ABOUT_THE_BYTES.into_iter().for_each(|name| drop(headers.remove(name)));
            let body = Kept::Bytes { body: body.into(), trailers: trailers.clone() };
            Arc::new(Response { status: answer.status, headers, body })
        }
        _ => Arc::new(answer.without_body(NotKept::Secret)),
    }
}

fn codings(headers: &HeaderMap) -> impl Iterator<Item = ()> {
    let lines = headers.get_all(CONTENT_ENCODING).into_iter();
    lines.filter_map(|line| body::coding(Some(line.as_bytes())).map(drop))
}

/// Headers that say something about the bytes of the body, which are no longer the same.
const ABOUT_THE_BYTES: [HeaderName; 9] = [
    HeaderName::from_static("accept-ranges"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-length"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("etag"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("signature"),
    HeaderName::from_static("signature-input"),
];

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderValue, StatusCode};

    use super::*;

    fn answer(body: &'static str, headers: &[(&'static str, &'static str)]) -> Arc<Response> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let body = Kept::Bytes { body: Bytes::from_static(body.as_bytes()), trailers: None };
        Arc::new(Response { status: StatusCode::CREATED, headers: headers.collect(), body })
    }

    fn kept(body: &'static str, pointers: &[&str]) -> Option<String> {
        let pointers: Vec<Pointer> = pointers.iter().map(|text| text.parse().unwrap()).collect();
        match &redacted(answer(body, &[]), &pointers).body {
            Kept::Bytes { body, .. } => Some(String::from_utf8(body.to_vec()).unwrap()),
            _ => None,
        }
    }

    // R185, threat H1
    #[test]
    fn what_a_pointer_leads_to_is_null_and_every_other_byte_stays() {
        let cases = [
            (r#"{"id": 1.50, "key":"canary" }"#, &["/key"][..], r#"{"id": 1.50, "key":null }"#),
            (
                r#"{"a":{"b":"canary"},"c":["canary",2]}"#,
                &["/a/b", "/c/0"],
                r#"{"a":{"b":null},"c":[null,2]}"#,
            ),
            (r#"{"a":{"b":"canary"}}"#, &["/a/b", "/a"], r#"{"a":null}"#),
            (r#"{"a":{"b":"canary"}}"#, &["/a", "/a/b"], r#"{"a":null}"#),
            (r#"{"k\u0065y":"canary"}"#, &["/key"], r#"{"k\u0065y":null}"#),
            (r#"{"a~b/c":"canary"}"#, &["/a~0b~1c"], r#"{"a~b/c":null}"#),
            (r#"["canary"]"#, &[""], "null"),
            (r#"{"id":1}"#, &["/key", "/id/key", "/0"], r#"{"id":1}"#),
            ("", &["/key"], ""),
        ];
        for (body, pointers, expected) in cases {
            assert_eq!(kept(body, pointers).as_deref(), Some(expected), "{body}");
        }
    }

    // R185: in doubt nothing is kept
    #[test]
    fn of_an_answer_that_cannot_be_judged_only_the_status_is_kept() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        for body in [
            r#"{"key":"canary","key":"canary"}"#,
            r#"{"key":"canary""#,
            r#"{"key":"canary"} x"#,
            "event: x\ndata: {\"key\":\"canary\"}\n\n",
            "key=canary",
            "\u{feff}{\"key\":\"canary\"}",
            deep.leak(),
        ] {
            assert_eq!(kept(body, &["/key"]), None, "{body}");
        }
        let coded = answer(r#"{"key":1}"#, &[("content-encoding", "gzip"), ("etag", "\"1\"")]);
        let bare = redacted(coded, &["/key".parse().unwrap()]);
        assert_eq!((bare.headers.len(), &bare.body), (0, &Kept::No(NotKept::Secret)));
    }

    #[test]
    fn no_header_is_kept_that_would_be_untrue_of_the_changed_body() {
        let headers = [
            ("etag", "\"1\""),
            ("repr-digest", "sha-256=:x:"),
            ("content-type", "application/json"),
            ("location", "/keys/1"),
        ];
        let names = |answer: &Response| {
            let mut names: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
            names.sort();
            names
        };
        let pointers = ["/key".parse().unwrap()];
        let changed = redacted(answer(r#"{"key":1}"#, &headers), &pointers);
        assert_eq!(names(&changed), ["content-type", "location"]);
        let same = redacted(answer(r#"{"id":1}"#, &headers), &pointers);
        assert_eq!(names(&same).len(), 4, "it is as it was");
    }
}
