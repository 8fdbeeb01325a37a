//! The body of a request, read within its bounds.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::answer::Problem;
use super::router::Endpoint;

/// The whole body. One that is declared or turns out to be too long is refused.
pub(super) async fn whole(body: Incoming, endpoint: Endpoint) -> Result<Bytes, Problem> {
    let bytes_max = if endpoint == Endpoint::BulkCsv { CSV_BYTES_MAX } else { JSON_BYTES_MAX };
    let read = timeout(READ_WAIT, Limited::new(body, bytes_max).collect()).await;
    match read {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body has more than {bytes_max} bytes"),
        )),
        Ok(Err(_)) => Err(Problem::bad_request("the body broke off")),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", SLOW)),
    }
}

/// The object that a change is described by.
pub(super) fn object(headers: &HeaderMap, body: &[u8]) -> Result<Map<String, Value>, Problem> {
    demand(headers, "application/json")?;
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Problem::bad_request("the body is not a JSON object")),
        Err(error) => Err(Problem::bad_request(format!("the body is not JSON: {error}"))),
    }
}

/// A form of another site cannot send these types without asking first.
pub(super) fn demand(headers: &HeaderMap, media_type: &str) -> Result<(), Problem> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|value| value.split(';').next()).unwrap_or_default();
    match sent.trim().eq_ignore_ascii_case(media_type) {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            format!("send Content-Type: {media_type}"),
        )),
    }
}

pub(super) const JSON_BYTES_MAX: usize = 1 << 20;
const CSV_BYTES_MAX: usize = 16 << 20;
/// How long a body may take.
const READ_WAIT: Duration = Duration::from_secs(30);
const SLOW: &str = "the body took too long";
