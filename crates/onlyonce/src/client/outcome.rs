//! What became of an operation, in five words, and what to do about each.

use std::fmt;

use http::StatusCode;

use super::answer::Answer;
use super::transport::Failure;
use crate::key::Key;

/// What became of an operation.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It happened now, and this is its answer (below 400).
    Fresh(Answer),
    /// It happened at an earlier attempt, and this is the answer of then (below 400).
    Replayed(Answer),
    /// It happened, and its answer is no longer to be had. Look at what it made; do not send it again.
    Done {
        /// The status that it was answered with.
        original_status: StatusCode,
    },
    /// Definite: nothing happened. Mend the request; a mended request is a new operation with a new key.
    Rejected {
        /// The refusal.
        answer: Answer,
        /// The other origin that the server pointed to, if that is why: it was not followed.
        elsewhere: Option<String>,
    },
    /// Indefinite: it may have happened. Keep the key.
    Unknown {
        /// The operation's key. Never make another one for it.
        key: Key,
        /// Why it is not known.
        doubt: Doubt,
        /// Why it was not asked again.
        stop: Stop,
        /// The last answer, if there was one.
        last: Option<Answer>,
    },
}

impl Outcome {
    /// The answer, if there is one.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Fresh(answer) | Self::Replayed(answer) | Self::Rejected { answer, .. } => {
                Some(answer)
            }
            Self::Unknown { last, .. } => last.as_ref(),
            Self::Done { .. } => None,
        }
    }

    /// Whether nothing is left to find out.
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }

    /// What it is called, in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fresh(_) => "fresh",
            Self::Replayed(_) => "replayed",
            Self::Done { .. } => "done",
            Self::Rejected { .. } => "rejected",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// What to do next, in a sentence.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Fresh(_) | Self::Replayed(_) => "It happened, once.",
            Self::Done { .. } => "It happened; look at what it made, and do not send it again.",
            Self::Rejected { elsewhere: Some(_), .. } => {
                "Nothing happened: the service points to another origin, which was not followed. If you trust it, send there."
            }
            Self::Rejected { .. } => {
                "Nothing happened. Mend the request; then it is a new operation with a new key."
            }
            Self::Unknown { doubt, stop, .. } => unknown_advice(*doubt, *stop),
        }
    }
}

fn unknown_advice(doubt: Doubt, stop: Stop) -> &'static str {
    match (doubt, stop) {
        (_, Stop::Window) => {
            "It may have happened, and the service may have forgotten the key: reconcile, do not send it again."
        }
        (_, Stop::Closed) => {
            "It may have happened, and asking again will not tell: reconcile, do not send it again."
        }
        (Doubt::InProgress, _) => {
            "It is still at work. Send it again later with the same key, never with a new one."
        }
        _ => "It may have happened. Send it again later with the same key, never with a new one.",
    }
}

/// Why it is not known whether an operation happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// It is still at work, or so the server says.
    InProgress,
    /// The server itself does not know.
    HeldUnknown,
    /// It was sent and no whole answer came: reset, cut short, timed out.
    NoAnswer,
    /// A 5xx that does not say how far it came.
    ServerError,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InProgress => "it is still at work",
            Self::HeldUnknown => "the server does not know its outcome",
            Self::NoAnswer => "it was sent and no whole answer came",
            Self::ServerError => "the server failed and does not say how far it came",
        })
    }
}

/// Why no further attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// All attempts were used.
    Attempts,
    /// The deadline is over, or would be before the next attempt.
    Deadline,
    /// Too much fails at the moment: the client's budget for retries is used up.
    Budget,
    /// The server may have forgotten the key: another attempt could be a second execution. Reconcile.
    Window,
    /// The server said not to come again.
    Told,
    /// The answer is final, and tells nothing. Reconcile.
    Closed,
    /// Too many redirects.
    Redirects,
    /// The request cannot be sent again: its body was not kept.
    Body,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attempts => "all attempts were used",
            Self::Deadline => "the deadline is over",
            Self::Budget => "too much fails at the moment, so nothing is retried",
            Self::Window => "the server may have forgotten the key by now",
            Self::Told => "the server said not to come again",
            Self::Closed => "the answer is final",
            Self::Redirects => "there were too many redirects",
            Self::Body => "its body was not kept",
        })
    }
}

/// Why an operation has no outcome. Nothing happened in either case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Definite: nothing happened, and the server may yet take it. Send it again later, with the same key.
    #[error("the operation never got through: {stop}")]
    NotThrough {
        /// The operation's key.
        key: Key,
        /// Why it was not tried again.
        stop: Stop,
        /// The last answer, if there was one.
        last: Option<Box<Answer>>,
        /// The last failure, if there was no answer.
        #[source]
        source: Option<Failure>,
    },
    /// The request itself is wrong, and was not sent. Mend it.
    #[error("the request cannot be sent: {0}")]
    Request(String),
    /// The journal could not be written, and so nothing was sent. Mend the journal, then send again.
    #[cfg(feature = "client-journal")]
    #[error("the operation could not be written to the journal, so it was not sent")]
    Journal(#[from] super::journal::JournalError),
}

impl SendError {
    /// What to do next, in a sentence.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NotThrough { .. } => "Nothing happened. Send it again later, with the same key.",
            Self::Request(_) => "Nothing was sent. Mend the request.",
            #[cfg(feature = "client-journal")]
            Self::Journal(_) => "Nothing was sent. Mend the journal, then send again.",
        }
    }
}
