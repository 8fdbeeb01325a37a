//! Events of a client while it sends, for logs and progress.

use std::time::Duration;

use super::answer::Answer;
use super::transport::TransportError;
use crate::key::Key;

/// Something that happened on the way to an outcome. `Debug` does not show the key.
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
    /// An attempt had no complete answer.
    Failed {
        /// Its number.
        number: u32,
        /// Why.
        failure: &'a TransportError,
    },
    /// The operation is retried after this wait, with the same key.
    Waiting {
        /// How long.
        wait: Duration,
    },
    /// A redirect within the same origin is followed.
    Redirected {
        /// Where.
        to: &'a http::Uri,
    },
}
