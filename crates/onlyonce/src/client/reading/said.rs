//! What the body of an answer says, in a shape of ours or of Stripe's.

use http::StatusCode;
use http::header::{CONTENT_TYPE, LINK};
use serde_json::Value;

use crate::client::answer::Answer;
use crate::code::{Code, DESCRIBED_BY, Retry, STRIPE_IN_USE, STRIPE_REUSED, WELL_KNOWN};

/// What an answer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) word: Word,
    pub(crate) retry: Option<Retry>,
    pub(crate) original_status: Option<StatusCode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Code(Code),
    /// A code of ours, of a version that this client does not know.
    Newer,
    /// No code, or one of a stranger.
    None,
}

impl Said {
    pub(super) fn of(answer: &Answer) -> Self {
        let media_type = answer.header(&CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
        let document: Value = match media_type.contains("json") {
            true => serde_json::from_slice(&answer.body).unwrap_or_default(),
            false => Value::Null,
        };
        let names_us = answer.headers.get_all(LINK).iter().any(|link| link == DESCRIBED_BY);
        if !media_type.starts_with("application/problem+json") {
            let word = of_stripe(&document["error"], names_us);
            return Self { word, retry: None, original_status: None };
        }
        let code = document["code"].as_str().unwrap_or_default();
        let is_typed = document["type"].as_str().is_some_and(|text| is_type_of(text, code));
        let original = document["original_status"].as_u64();
        let original = original.and_then(|code| code.try_into().ok());
        Self {
            word: Word::of(code, names_us || is_typed),
            retry: document["retry"].as_str().and_then(Retry::from_text),
            original_status: original.and_then(|code: u16| StatusCode::from_u16(code).ok()),
        }
    }
}

impl Word {
    /// `is_ours`: the answer comes from a server of ours. Only then are words ours that a stranger would use too, such as
    /// `overloaded`.
    pub(crate) fn of(text: &str, is_ours: bool) -> Self {
        match Code::from_text(text) {
            _ if !is_ours && !text.starts_with(PREFIX) => Self::None,
            Some(code) => Self::Code(code),
            None if text.is_empty() => Self::None,
            None => Self::Newer,
        }
    }
}

/// The code of an error in Stripe's shape: Stripe's own two, or one of ours, which name themselves.
fn of_stripe(error: &Value, names_us: bool) -> Word {
    let text = |name| error[name].as_str().unwrap_or_default();
    match (text("type"), text("code")) {
        (STRIPE_REUSED, _) => Word::Code(Code::KeyReused),
        (_, STRIPE_IN_USE) => Word::Code(Code::InProgress),
        (_, RATE_LIMIT) => Word::None,
        (_, code) => Word::of(code, names_us),
    }
}

/// Whether the `type` of a problem names this code in our description.
fn is_type_of(text: &str, code: &str) -> bool {
    let before = text.strip_suffix(code).and_then(|start| start.strip_suffix('#'));
    before.is_some_and(|place| place.ends_with(WELL_KNOWN))
}

/// The beginning of most of our codes, and of nobody else's.
const PREFIX: &str = "idempotency_";
/// Stripe's word for 429, which says all.
const RATE_LIMIT: &str = "rate_limit";
