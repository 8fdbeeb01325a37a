//! Refusals that a handler has made of an error of the database, and that would be kept.
//!
//! Nobody tells what the error was (`state.rs`). One that comes of a conflict, such as a row that has moved to another partition,
//! is gone in the next attempts; one that the handler expects, such as a violated constraint, is there in all of them.

use http::{Response, StatusCode};

use crate::http::Body;
use crate::transaction::Reply;

/// Such a refusal.
pub(super) struct Doubtful {
    pub(super) reply: Reply,
    pub(super) response: Response<Body>,
}

/// The last of them, and how many were like it.
#[derive(Default)]
pub(super) struct Doubts {
    status: Option<StatusCode>,
    alike: u32,
}

impl Doubts {
    /// Whether enough attempts in a row have ended with this one.
    pub(super) fn are_dispelled_by(&mut self, status: StatusCode) -> bool {
        self.alike = if self.status == Some(status) { self.alike + 1 } else { 1 };
        self.status = Some(status);
        self.alike >= ALIKE_MIN
    }
}

/// How many attempts in a row end with the same refusal before it is taken for no conflict.
const ALIKE_MIN: u32 = 3;
