//! What a client does while it does it, for whoever watches.

use std::time::Duration;

use super::answer::Answer;
use super::transport::Failure;
use crate::key::Key;

/// Something that happened on the way to an outcome. It shows the key only to whoever asks for it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An attempt begins.
    Attempt {
        /// The operation's key.
        key: &'a Key,
        /// 1, 2, 3…
        number: u32,
    },
    /// An attempt was answered.
    Answered {
        /// Its number.
        number: u32,
        /// The answer.
        answer: &'a Answer,
    },
    /// An attempt had no whole answer.
    Failed {
        /// Its number.
        number: u32,
        /// Why.
        failure: &'a Failure,
    },
    /// It is sent again after this wait, with the same key.
    Waiting {
        /// How long.
        wait: Duration,
    },
    /// It is sent on, or read, elsewhere in the same origin.
    Redirected {
        /// Where.
        to: &'a http::Uri,
    },
}
