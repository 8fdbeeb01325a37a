//! A parked message in words.

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::outbox::ParkedMessage;
use serde_json::{Value, json};

use super::table;
use crate::words::span;

/// Whole, payload included: as text where it is one, else as base64.
pub(super) fn as_json(message: &ParkedMessage, payload: &[u8]) -> Value {
    let mut object = json!({
        "id": message.id,
        "topic": message.topic,
        "key": message.key,
        "attempts": message.attempts,
        "error": message.error,
        "created_at": message.created_at.rfc3339(),
        "parked_at": message.parked_at.rfc3339(),
    });
    match std::str::from_utf8(payload) {
        Ok(text) => object["payload"] = text.into(),
        Err(_) => object["payload_base64"] = crate::admin::base64(payload).into(),
    }
    object
}

/// Without the payloads: they belong on no screen.
pub(super) fn as_table(messages: &[ParkedMessage]) -> String {
    let now = SystemClock.wall();
    let row = |message: &ParkedMessage| {
        [
            message.topic.clone(),
            message.key.clone().unwrap_or_else(|| "-".to_owned()),
            span(now.since_ms(message.parked_at)),
            message.attempts.to_string(),
            message.id.clone(),
            message.error.clone(),
        ]
    };
    table::of(
        ["TOPIC", "KEY", "PARKED", "REFUSED", "ID", "ERROR"],
        messages.iter().map(row).collect(),
    )
}
