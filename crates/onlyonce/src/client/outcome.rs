//! The five outcomes of an operation, and what to do about each.

use std::fmt;

use http::StatusCode;

use super::answer::Answer;
#[cfg(feature = "client-journal")]
use super::journal::JournalError;
use super::reading::is_key_reused;
use super::transport::TransportError;
use crate::code::Retry;
use crate::key::Key;

/// The outcome of an operation that was sent.
#[derive(Clone, Debug)]
pub enum SendOutcome {
    /// The operation was executed now, and this is its answer (2xx).
    Fresh(Answer),
    /// The operation was executed at an earlier attempt, and this is the answer of that attempt (2xx).
    Replayed(Answer),
    /// The operation was executed, and this run did not receive its answer. Check the result at the service.
    Done {
        /// The status of the answer: 2xx, or 303 whose result could not be read.
        original_status: StatusCode,
        /// Whether the service has the answer on record, and was only asked for its status: a request with the same key
        /// gets a replay.
        may_be_replayed: bool,
    },
    /// Definite: the service refused the operation, and no attempt of this run did anything. What to do with the key is
    /// in `retry`. Runs that this one does not know of (an earlier process without a journal, another
    /// request with the same key) are not part of this outcome: see
    /// [`advice_for_given_key`](SendOutcome::advice_for_given_key).
    Rejected {
        /// The refusal. Without headers and body where the service has only its status on record.
        answer: Answer,
        /// The other origin that the service redirects to, if the refusal is a redirect that was not followed.
        elsewhere: Option<String>,
        /// What to do with the key: [`NewKey`](Retry::NewKey) once the request is right; [`SameKey`](Retry::SameKey)
        /// after a refusal that no service keeps on record (401, 403, 407 and the like), because it says nothing of
        /// what was sent with the key before; [`Never`](Retry::Never) where the service says not to send the request
        /// again as it is.
        retry: Retry,
    },
    /// Indefinite: the operation may have been executed. Keep the key.
    ///
    /// Once an attempt may have been executed, only an answer from the service's record of the key ends in
    /// anything else: a replay, word that the answer was not kept, or a fresh success.
    Unknown {
        /// The operation's key. Never make another key for this operation.
        key: Key,
        /// Why the outcome is not known.
        doubt: Doubt,
        /// Why the operation was not sent again.
        stop: Stop,
        /// The last answer, if there was one.
        last: Option<Answer>,
    },
}

impl SendOutcome {
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

    /// Whether the outcome is definite.
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }

    /// The name of the outcome, in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fresh(_) => "fresh",
            Self::Replayed(_) => "replayed",
            Self::Done { .. } => "done",
            Self::Rejected { .. } => "rejected",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// What is known, and what to do next.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Fresh(_) => "The request was executed.",
            Self::Replayed(_) => "The request was executed before; this is the answer from then.",
            Self::Done { may_be_replayed: true, .. } => {
                "The request was executed; this run did not receive the answer. Run it again with the same key to get the answer."
            }
            Self::Done { may_be_replayed: false, .. } => {
                "The request was executed; this run did not receive the answer. Check the result at the service; do not send the request again."
            }
            Self::Rejected { answer, elsewhere, retry } => {
                rejected_advice(answer, elsewhere.is_some(), *retry)
            }
            Self::Unknown { doubt, stop, .. } => unknown_advice(*doubt, *stop),
        }
    }

    /// The advice for a key that may be older than this run: a run that ended, or had no journal, is not known here,
    /// and a refusal that is not on record says nothing about it.
    pub fn advice_for_given_key(&self) -> &'static str {
        match self {
            Self::Rejected { answer, elsewhere, retry }
                if speaks_for_this_run(answer, elsewhere.is_some(), *retry) =>
            {
                "This run was not executed. If an earlier run with this key may have been, check at the service before you use a new key."
            }
            _ => self.advice(),
        }
    }
}

/// Whether the advice after a refusal would be wrong if an earlier run was executed.
fn speaks_for_this_run(answer: &Answer, is_elsewhere: bool, retry: Retry) -> bool {
    let gives_key_up = retry == Retry::NewKey && !is_key_reused(answer);
    !answer.is_replay() && (is_elsewhere || gives_key_up)
}

fn rejected_advice(answer: &Answer, is_elsewhere: bool, retry: Retry) -> &'static str {
    match retry {
        _ if is_elsewhere => {
            "The request was not executed: the service redirects to another origin, which was not followed. If you trust that origin, send the request there."
        }
        Retry::NewKey if is_key_reused(answer) => {
            "This request was not executed: its key belongs to another request, which may have been executed. If this one is a different operation, send it with a new key."
        }
        Retry::SameKey => {
            "The service refused this attempt, and such a refusal is not on record for the key. Fix its cause, such as the credentials, and send the request again with the same key, never with a new one."
        }
        Retry::Never => {
            "This request was not executed, and the service says not to send it again as it is. If an earlier one with this key may have been executed, check at the service before you send it in another form."
        }
        Retry::NewKey => {
            "The service refused the request. Fix the request and send it with a new key."
        }
    }
}

fn unknown_advice(doubt: Doubt, stop: Stop) -> &'static str {
    match (doubt, stop) {
        (_, Stop::Window) => {
            "The request may have been executed, and the service may have forgotten the key. Reconcile: check at the service whether it was executed, and do not send it again before that."
        }
        (Doubt::AnswerNotKept, _) => {
            "The request was executed, says the service, which has neither its answer nor its status any more. Check the result at the service; do not send the request again."
        }
        (Doubt::KeyExpired, _) => {
            "This attempt was not executed, because the key is older than the service keeps answers: an earlier one may have been. Reconcile: check at the service whether it was executed, and do not send it again before that."
        }
        (_, Stop::Closed) => {
            "The request may have been executed, and asking again will not tell. Reconcile: check at the service whether it was executed, and do not send it again before that."
        }
        (_, Stop::KeyReused) => {
            "An earlier attempt may have been executed, although the key belongs to another request by now. Reconcile: check at the service whether this request was executed, and do not send it again before that."
        }
        (_, Stop::NotFollowed) => {
            "The request may have been executed, so the redirect was not followed. Check at the service whether it was executed. Send it again only to the same URL with the same key, never with a new one."
        }
        (Doubt::HeldUnknown, _) => {
            "The request may have been executed: the service itself does not know. An operator of the service must resolve it; after that, send it again with the same key, never with a new one."
        }
        (_, Stop::Refused) => {
            "An earlier attempt may have been executed; the refusal of the last one does not say. Fix the cause of the refusal and send the request again with the same key, never with a new one."
        }
        (Doubt::InProgress, _) => {
            "The request is still running. Send it again later with the same key, never with a new one."
        }
        (Doubt::Conflict, _) => {
            "The service answered 409, which may mean that the first request is still running. Send it again later with the same key, never with a new one."
        }
        _ => {
            "The request may have been executed. Send it again later with the same key, never with a new one."
        }
    }
}

/// Why it is not known whether an operation was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// The service says that the operation still runs.
    InProgress,
    /// The service answered 409 without a reason: the operation may still run.
    Conflict,
    /// The service itself does not know the outcome, and waits for an operator.
    HeldUnknown,
    /// The request was sent and no complete answer came: reset, cut short, timed out.
    NoAnswer,
    /// A 5xx, or a 408, that does not say whether the request was executed.
    ServerError,
    /// A redirect that does not say whether the request was executed: to a login page, or to its result.
    Redirected,
    /// The service says that the operation was executed, but neither its answer nor its status.
    AnswerNotKept,
    /// The service says that the key is older than it keeps answers: it may have executed the operation and forgotten it.
    KeyExpired,
    /// The service answered with a code that this client does not know, because the service is newer.
    NewerCode,
    /// An earlier run sent the operation, or was about to, and its outcome is not in the journal.
    EarlierRun,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InProgress => "it is still running",
            Self::Conflict => {
                "the service answered 409, which may mean that the first request is still running"
            }
            Self::HeldUnknown => "the service does not know the outcome",
            Self::NoAnswer => "it was sent and no complete answer came",
            Self::ServerError => "the service failed and does not say whether it was executed",
            Self::Redirected => {
                "the service answered with a redirect, which does not say whether it was executed"
            }
            Self::AnswerNotKept => "the service no longer has the answer",
            Self::KeyExpired => "the key is older than the service keeps answers",
            Self::NewerCode => {
                "the service is newer than this client, which does not know what its answer says"
            }
            Self::EarlierRun => "an earlier run may have sent it",
        })
    }
}

/// Why no further attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// All attempts were used.
    Attempts,
    /// The deadline has passed, or would have before the next attempt.
    Deadline,
    /// Too many requests fail at the moment: the client's budget for retries is used up.
    Budget,
    /// The service may have forgotten the key: another attempt could be a second execution. Reconcile.
    Window,
    /// How long the service keeps keys is not known, because it did not answer when it was asked, and an
    /// earlier run may have been executed: another attempt could be a second execution. Try again later.
    WindowUnknown,
    /// The service said not to retry.
    Told,
    /// The answer is final and does not tell. Reconcile.
    Closed,
    /// Too many redirects.
    Redirects,
    /// A redirect was not followed, because the request may have been executed before it.
    NotFollowed,
    /// The last attempt was refused, which says nothing about the earlier attempts.
    Refused,
    /// The service says that the key belongs to another request, which says nothing certain of an earlier
    /// attempt of this one. Reconcile.
    KeyReused,
    /// The service was asked twice and does not know the outcome.
    Held,
    /// The request cannot be sent again: its body was not kept.
    Body,
    /// The next attempt could not be written to the journal, and so was not sent. Fix the journal, then send
    /// the request again with the same key.
    Journal,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attempts => "all attempts were used",
            Self::Deadline => "there is no time for another attempt before the deadline",
            Self::Budget => "too many requests fail at the moment, so nothing is retried",
            Self::Window => "the service may have forgotten the key by now",
            Self::WindowUnknown => {
                "the service did not answer when it was asked how long it keeps keys"
            }
            Self::Told => "the service said not to retry",
            Self::Closed => "asking again will not tell",
            Self::Redirects => "there were too many redirects",
            Self::NotFollowed => "a redirect was not followed",
            Self::Refused => "the last attempt was refused, which says nothing of the earlier ones",
            Self::KeyReused => "the key belongs to another request",
            Self::Held => "the service was asked twice",
            Self::Body => "the body was not kept in the journal",
            Self::Journal => "the next attempt could not be written to the journal",
        })
    }
}

/// Why an operation has no outcome. No attempt of this run was executed in any of these cases.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Definite: nothing was executed. Send the operation again later with the same key.
    #[error("the request did not get through: {stop}")]
    NotThrough {
        /// The operation's key.
        key: Key,
        /// Why no further attempt was made.
        stop: Stop,
        /// The last answer, if there was one.
        last: Option<Box<Answer>>,
        /// The last failure, if there was no answer.
        #[source]
        source: Option<TransportError>,
    },
    /// The request itself is wrong, and was not sent. Fix it.
    #[error("the request cannot be sent: {0}")]
    Request(String),
    /// The journal could not be written, and so nothing was sent. Fix the journal, then send it again.
    #[cfg(feature = "client-journal")]
    #[error("the request could not be written to the journal, so it was not sent")]
    Journal(#[from] JournalError),
}

impl SendError {
    /// What is known, and what to do next.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NotThrough { .. } => {
                "No attempt of this run was executed. Send the request again later with the same key."
            }
            Self::Request(_) => "Nothing was sent. Fix the request.",
            #[cfg(feature = "client-journal")]
            Self::Journal(JournalError::Reused { is_in_doubt: true }) => {
                "The journal has this key with a different request, which may have been executed. Repeat that request exactly (--resume), or give this one a key of its own."
            }
            #[cfg(feature = "client-journal")]
            Self::Journal(JournalError::Reused { is_in_doubt: false }) => {
                "Nothing was sent. The journal has this key with a different request, which was not executed. Repeat that request exactly (--resume), or give this one a key of its own."
            }
            #[cfg(feature = "client-journal")]
            Self::Journal(_) => "Nothing was sent. Fix the journal, then send the request again.",
        }
    }
}
