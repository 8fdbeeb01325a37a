//! JSON-RPC over HTTP, as agents speak it: a retry has an id of its own, and expects that id in its answer.
//!
//! 1. The id belongs to the message and not to the operation, so it is no part of the fingerprint, and a replay has the
//!    id of the request that asks.
//! 2. An answer is a JSON object, or an event stream (MCP) whose events are such objects. Such a stream is kept whole: it
//!    ends with the answer, unlike other event streams. One that ends without an answer does not say what was done: the
//!    service may close it early, and go on in a stream that the client asks for later.
//! 3. A message without an id is a notification, and has no answer to write an id into.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, Response};
use serde_json::value::RawValue;

use super::capture::is_event_stream;
use super::event_stream::events;
use super::{Body, IDEMPOTENT_REPLAYED};

/// The id of a message, as it is written.
pub(super) fn id_of(message: &[u8]) -> Option<Box<RawValue>> {
    member(message, "id").map(ToOwned::to_owned)
}

/// Whether an event of this stream is an answer.
pub(super) fn has_answer(stream: &[u8]) -> bool {
    let mut data = events(stream).filter_map(|event| event.data());
    data.any(|data| messages(&data).iter().any(|message| is_answer(message.get().as_bytes())))
}

/// The messages in this data: one, or those of a batch.
fn messages(data: &[u8]) -> Vec<&RawValue> {
    let batch = serde_json::from_slice(data);
    batch.or_else(|_| serde_json::from_slice(data).map(|message| vec![message])).unwrap_or_default()
}

/// A replay with the id of the request that asks; every other answer as it is.
pub(super) fn for_caller(id: Option<&RawValue>, answer: Response<Body>) -> Response<Body> {
    let is_replay = answer.headers().contains_key(IDEMPOTENT_REPLAYED);
    let held = answer.body().held().cloned();
    match (id, held) {
        (Some(id), Some(bytes)) if is_replay => {
            let bytes = with_id(&bytes, id, answer.headers());
            answer.map(|_| Body::kept(bytes, None))
        }
        _ => answer,
    }
}

fn with_id(bytes: &Bytes, id: &RawValue, headers: &HeaderMap) -> Bytes {
    if !is_event_stream(headers) {
        return replaced(bytes, id).unwrap_or_else(|| bytes.to_vec()).into();
    }
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let data = line.strip_prefix(b"data:").and_then(|message| replaced(message, id));
        data.map_or_else(|| line.to_vec(), |message| [b"data:", &message[..]].concat())
    });
    lines.collect::<Vec<_>>().concat().into()
}

/// The message with another id; `None` if it is no answer. All other bytes stay.
fn replaced(message: &[u8], id: &RawValue) -> Option<Vec<u8>> {
    let old = member(message, "id").filter(|_| is_answer(message))?.get();
    let start = old.as_ptr() as usize - message.as_ptr() as usize;
    let (before, rest) = message.split_at(start);
    Some([before, id.get().as_bytes(), &rest[old.len()..]].concat())
}

fn is_answer(message: &[u8]) -> bool {
    member(message, "result").or_else(|| member(message, "error")).is_some()
}

/// A member of a JSON object, where it stands.
fn member<'a>(message: &'a [u8], name: &str) -> Option<&'a RawValue> {
    let mut members: HashMap<String, &RawValue> = serde_json::from_slice(message).ok()?;
    members.remove(name)
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn rewritten(message: &str, id: &str, media_type: &str) -> String {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, media_type.parse().unwrap())]);
        let bytes = with_id(&Bytes::from(message.to_owned()), &raw(id), &headers);
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn an_answer_gets_the_id_of_the_request_and_keeps_its_other_bytes() {
        let answer = r#"{ "jsonrpc":"2.0", "id" : 1 ,"result":{"id":1,"text":"caf\u00e9"}}"#;
        let expected = r#"{ "jsonrpc":"2.0", "id" : "b-2" ,"result":{"id":1,"text":"caf\u00e9"}}"#;
        assert_eq!(rewritten(answer, "\"b-2\"", "application/json"), expected);
        let error = r#"{"id":null,"error":{"code":-32600}}"#;
        let expected = r#"{"id":7,"error":{"code":-32600}}"#;
        assert_eq!(rewritten(error, "7", "application/json; charset=utf-8"), expected);
    }

    #[test]
    fn the_events_of_a_stream_that_are_answers_get_it() {
        let stream = concat!(
            "event: message\ndata: {\"method\":\"notifications/progress\",\"params\":{\"id\":1}}\n\n",
            "id: 5\r\nevent: message\r\ndata: {\"id\":1,\"result\":{}}\r\n\r\n",
        );
        let expected = stream.replace("{\"id\":1,\"result\"", "{\"id\":9,\"result\"");
        assert_eq!(rewritten(stream, "9", "text/event-stream"), expected);
    }

    #[test]
    fn what_is_no_answer_stays_as_it_is() {
        for text in ["", "[1]", "charged", r#"{"id":1}"#, r#"{"id":1,"method":"ping"}"#] {
            assert_eq!(rewritten(text, "2", "application/json"), text);
        }
    }

    #[test]
    fn a_message_without_an_id_is_a_notification() {
        assert!(id_of(br#"{"method":"notifications/initialized"}"#).is_none());
        assert_eq!(id_of(br#"{"id":1e0}"#).unwrap().get(), "1e0");
    }
}
