//! What the database holds for an operation, and what is written to it.

use super::StepsState;
use crate::clock::StoreTime;
use crate::record::Token;
use crate::transaction::{Reply, ReplyError};

/// A row, with the database's time.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) fingerprint: Vec<u8>,
    pub(super) request: String,
    pub(super) state: StepsState,
    pub(super) since: StoreTime,
    pub(super) revision: i64,
    /// Running, waiting and stuck ones have it.
    pub(super) due_at: Option<StoreTime>,
    pub(super) attempts: u32,
    pub(super) calling: Option<Calling>,
    pub(super) error: Option<String>,
    pub(super) points: Vec<Point>,
    /// Completed ones have it.
    pub(super) answer: Option<Answer>,
    pub(super) now: StoreTime,
}

/// A call that was begun, or a step that has ended its transaction by itself, without a point: it may have been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Calling {
    pub(super) name: String,
    /// It is made again with the same key; but never under another name, which would be another key.
    pub(super) is_repeatable: bool,
}

impl Calling {
    /// As the database has it.
    pub(super) fn of(name: Option<String>, is_repeatable: bool) -> Option<Self> {
        name.map(|name| Self { name, is_repeatable })
    }
}

/// A committed point: the name of its step, and what the step remembered, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) name: String,
    pub(super) value: String,
}

/// A kept answer, as the database has it.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: i32,
    pub(super) headers: String,
    pub(super) body: Vec<u8>,
    pub(super) expires_at: StoreTime,
}

impl Answer {
    pub(super) fn reply(&self) -> Result<Reply, ReplyError> {
        Reply::kept(self.status, &self.headers, self.body.clone())
    }
}

/// A new row.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) scope: String,
    pub(super) principal: String,
    pub(super) key: String,
    pub(super) fingerprint: Vec<u8>,
    pub(super) ttl_ms: f64,
    pub(super) request: String,
    /// Its first one, at random.
    pub(super) revision: i64,
}

/// What a row becomes. Times count from the database's own time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) state: StepsState,
    pub(super) token: Option<Token>,
    pub(super) due_ms: Option<i64>,
    pub(super) attempts: u32,
    pub(super) calling: Option<Calling>,
    /// How long after it has ended a call of its owner may still be on its way.
    pub(super) quiet_ms: i64,
    /// `None` keeps the last one.
    pub(super) error: Option<String>,
}

/// What must still hold for a row to be written: its revision, and the token of an owner. Without an owner, that it is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) revision: i64,
    pub(super) owner: Option<Token>,
}

/// The points as both databases tell them: a JSON list of names and values.
pub(super) fn points(json: &str) -> Result<Vec<Point>, serde_json::Error> {
    let pairs: Vec<(String, String)> = serde_json::from_str(json)?;
    Ok(pairs.into_iter().map(|(name, value)| Point { name, value }).collect())
}
