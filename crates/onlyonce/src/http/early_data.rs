//! Requests that came in early data of TLS 1.3: RFC 8470.
//!
//! 1. Early data has no protection against replay: whoever has copied it can send it again, to this node or to another one.
//! 2. A proxy in front that passes such a request on says so with `Early-Data: 1`. Doubled or malformed, the field means the
//!    same (section 5.1).
//! 3. A request with a key is taken: the copy gets the first answer. A safe request is taken too. Every other one is
//!    answered 425, and its client sends it again when the handshake is complete.

use http::header::HeaderName;
use http::request::Parts;

/// Whether a stranger may have copied the request, and its copy would have an effect unless a key prevents it.
pub(crate) fn is_replayable(head: &Parts) -> bool {
    let is_safe = head.method.is_safe() || head.method.as_str() == "QUERY";
    !is_safe && head.headers.contains_key(EARLY_DATA)
}

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn is_refused(method: &str, fields: &[&str]) -> bool {
        let request = fields.iter().fold(Request::builder().method(method), |request, value| {
            request.header("Early-Data", *value)
        });
        is_replayable(&request.body(()).unwrap().into_parts().0)
    }

    // R188
    #[test]
    fn an_unsafe_request_in_early_data_is_replayable_however_the_field_is_written() {
        for method in ["POST", "PATCH", "PUT", "DELETE", "post", "PURGE"] {
            assert!(!is_refused(method, &[]), "{method}");
            for fields in [&["1"][..], &["0"], &[""], &["1", "1"], &["1, 1"]] {
                assert!(is_refused(method, fields), "{method} {fields:?}");
            }
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"] {
            assert!(!is_refused(method, &["1"]), "{method}");
        }
    }
}
