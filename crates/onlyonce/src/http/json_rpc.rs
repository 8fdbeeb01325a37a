//! JSON-RPC over HTTP, as agents speak it: a retry has an id of its own, and expects that id in its answer.
//!
//! 1. The id belongs to the message and not to the operation, so it is no part of the fingerprint, and a replay has the
//!    id of the request that asks. Whether there is an id counts: a call and a notification are two requests.
//! 2. An answer is a JSON object, or an event stream (MCP) whose events are such objects. Such a stream is kept whole: it
//!    ends with the answer, unlike other event streams. One that ends without an answer does not say what was done: the
//!    service may close it early, and go on in a stream that the client asks for later. One in which the service asks its
//!    client something is not kept: the client must hear the question before the stream ends.
//! 3. A message without an id is a notification, and has no answer to write an id into.
//! 4. A batch is one request. It passes if none of its messages has a key, and is refused otherwise.

use std::collections::HashMap;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use serde_json::value::RawValue;

use super::capture::is_event_stream;
use super::event_stream::{Event, events};
use super::{Body, IDEMPOTENT_REPLAYED};
use crate::key::{self, KeyRules, KeySource};
use crate::policy::Policy;
use crate::problem::Problem;

/// Who sends a message, as far as its answer needs it.
pub(super) struct Caller {
    /// The id of the message, as it is written; `None` for a notification.
    id: Option<Box<RawValue>>,
}

impl Caller {
    pub(super) fn of(message: &[u8]) -> Self {
        Self { id: member(message, "id").map(ToOwned::to_owned) }
    }
}

/// Whether this is a message without an id: there is no answer to it.
pub(super) fn is_notification(message: &[u8]) -> bool {
    member(message, "method").is_some() && member(message, "id").is_none()
}

/// Whether this is a batch (of JSON-RPC, of GraphQL, of CloudEvents) with a message that has a key where `sources` say.
/// Messages of a batch are not guarded one by one.
pub(super) fn has_keyed_message(sources: &[KeySource], head: &Parts, body: &[u8]) -> bool {
    let in_messages =
        |source: &&KeySource| matches!(source, KeySource::Json(_) | KeySource::CloudEvent);
    if !sources.iter().any(|source| in_messages(&source)) {
        return false;
    }
    let batch: Vec<&RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let sources: Vec<_> = sources.iter().filter(in_messages).cloned().collect();
    let rules = KeyRules::default();
    batch.iter().any(|message| {
        let key = key::find(&sources, head, Some(message.get().as_bytes()), None, &rules);
        !matches!(key, Ok(None))
    })
}

/// Whether an event of this stream is an answer.
pub(super) fn has_answer(stream: &[u8]) -> bool {
    let mut data = events(stream).filter_map(|event| event.data());
    data.any(|data| messages(&data).iter().any(|message| is_answer(message.get().as_bytes())))
}

/// Looks for questions of the service to its client, in a stream that is still arriving.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// How many bytes have arrived, and how many of them are whole events that were looked at.
    arrived: usize,
    seen: usize,
}

impl Questions {
    /// Whether one has come. The service then waits for its client, who must get the stream before it ends.
    pub(super) fn have_come(&mut self, stream: &[u8]) -> bool {
        let added = &stream[self.arrived..];
        self.arrived = stream.len();
        added.iter().any(|byte| matches!(byte, b'\r' | b'\n')) && self.is_in_events(stream)
    }

    fn is_in_events(&mut self, stream: &[u8]) -> bool {
        let mut whole = events(&stream[self.seen..]).take_while(Event::is_ended);
        whole.any(|event| {
            self.seen += event.length();
            let data = event.data().unwrap_or_default();
            messages(&data).iter().any(|message| is_question(message.get().as_bytes()))
        })
    }
}

/// The messages in this data: one, or those of a batch.
fn messages(data: &[u8]) -> Vec<&RawValue> {
    let batch = serde_json::from_slice(data);
    batch.or_else(|_| serde_json::from_slice(data).map(|message| vec![message])).unwrap_or_default()
}

/// A replay as its caller expects it: with the id of the request that asks. 410 if the answer cannot get that id. Every
/// other answer as it is.
pub(super) fn for_caller(
    caller: Option<&Caller>,
    answer: Response<Body>,
    policy: &Policy,
) -> Response<Body> {
    let is_replay = answer.headers().contains_key(IDEMPOTENT_REPLAYED);
    let (Some(caller), Some(bytes), true) = (caller, answer.body().held(), is_replay) else {
        return answer;
    };
    let bytes = match is_event_stream(answer.headers()) {
        true => stream_for(caller, bytes),
        false => {
            message_for(caller, bytes).map(|message| message.unwrap_or_else(|| bytes.to_vec()))
        }
    };
    match bytes {
        Ok(bytes) => answer.map(|_| Body::kept(Bytes::from(bytes), None)),
        Err(Foreign) => Problem::response_unavailable(answer.status()).response(policy),
    }
}

/// The answer has an id that cannot be replaced: it would be taken for the answer to another message, or to none.
#[derive(Debug, PartialEq)]
struct Foreign;

fn stream_for(caller: &Caller, stream: &[u8]) -> Result<Vec<u8>, Foreign> {
    let replayed = events(stream).map(|event| {
        let data = event.data().map(|data| message_for(caller, &data)).transpose()?.flatten();
        Ok(event.replayed(data.as_deref()))
    });
    replayed.collect::<Result<Vec<_>, _>>().map(|events| events.concat())
}

/// The message with the caller's id; `None` if it stays as it is. All other bytes stay.
fn message_for(caller: &Caller, message: &[u8]) -> Result<Option<Vec<u8>>, Foreign> {
    let Some(id) = &caller.id else { return Ok(None) };
    if is_answer(message) {
        return Ok(replaced(message, id));
    }
    match messages(message).iter().any(|message| is_answer(message.get().as_bytes())) {
        true => Err(Foreign),
        false => Ok(None),
    }
}

fn replaced(message: &[u8], id: &RawValue) -> Option<Vec<u8>> {
    let old = member(message, "id")?.get();
    let start = old.as_ptr() as usize - message.as_ptr() as usize;
    let (before, rest) = message.split_at(start);
    Some([before, id.get().as_bytes(), &rest[old.len()..]].concat())
}

fn is_answer(message: &[u8]) -> bool {
    member(message, "result").or_else(|| member(message, "error")).is_some()
}

fn is_question(message: &[u8]) -> bool {
    member(message, "method").is_some() && member(message, "id").is_some()
}

/// A member of a JSON object, where it stands.
fn member<'a>(message: &'a [u8], name: &str) -> Option<&'a RawValue> {
    let mut members: HashMap<String, &RawValue> = serde_json::from_slice(message).ok()?;
    members.remove(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(id: &str) -> Caller {
        Caller { id: Some(RawValue::from_string(id.to_owned()).unwrap()) }
    }

    fn message(text: &str, id: &str) -> String {
        let rewritten = message_for(&caller(id), text.as_bytes()).unwrap();
        rewritten.map_or_else(|| text.to_owned(), |bytes| String::from_utf8(bytes).unwrap())
    }

    fn stream(text: &str, id: &str) -> String {
        String::from_utf8(stream_for(&caller(id), text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn an_answer_gets_the_id_of_the_request_and_keeps_its_other_bytes() {
        let answer = r#"{ "jsonrpc":"2.0", "id" : 1 ,"result":{"id":1,"text":"caf\u00e9"}}"#;
        let expected = r#"{ "jsonrpc":"2.0", "id" : "b-2" ,"result":{"id":1,"text":"caf\u00e9"}}"#;
        assert_eq!(message(answer, "\"b-2\""), expected);
        let error = r#"{"id":null,"error":{"code":-32600}}"#;
        let expected = r#"{"id":7,"error":{"code":-32600}}"#;
        assert_eq!(message(error, "7"), expected);
    }

    #[test]
    fn the_events_of_a_stream_that_are_answers_get_it() {
        let text = concat!(
            "event: message\ndata: {\"method\":\"notifications/progress\",\"params\":{\"id\":1}}\n\n",
            "event: message\r\ndata: {\"id\":1,\"result\":{}}\r\n\r\n",
        );
        let expected = text.replace("{\"id\":1,\"result\"", "{\"id\":9,\"result\"");
        assert_eq!(stream(text, "9"), expected);
    }

    #[test]
    fn what_is_no_answer_stays_as_it_is() {
        for text in ["", "[1]", "charged", r#"{"id":1}"#, r#"{"id":1,"method":"ping"}"#] {
            assert_eq!(message(text, "2"), text);
        }
    }

    #[test]
    fn an_id_inside_a_batch_is_not_replaced() {
        let batch = br#"[{"id":1,"result":{}}]"#;
        assert_eq!(message_for(&caller("2"), batch), Err(Foreign));
    }

    #[test]
    fn a_message_without_an_id_is_a_notification() {
        assert!(Caller::of(br#"{"method":"notifications/initialized"}"#).id.is_none());
        assert_eq!(Caller::of(br#"{"id":1e0}"#).id.unwrap().get(), "1e0");
    }
}
