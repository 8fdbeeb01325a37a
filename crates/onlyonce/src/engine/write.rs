//! The writes: what a store is asked to do for each event.

use std::sync::Arc;

use crate::clock::StoreTime;
use crate::engine::table::RecordEvent;
use crate::planted::{Planted, planted};
use crate::record::{
    KeyText, NotKept, Record, Response, Revision, SettledBy, State, TakenFrom, Token,
};
use crate::store::audit::About;
use crate::store::{Draft, Guard, Next, Takeover};

/// A guarded write, ready for [`Store::swap`](crate::store::Store::swap).
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// What must still be true.
    pub guard: Guard,
    /// What the record becomes.
    pub next: Next,
    /// What the audit trail is told of it, where one is kept.
    pub about: Option<Arc<About>>,
}

impl Write {
    /// This write, with what the audit trail is told of it.
    #[must_use]
    pub fn with_about(self, about: Option<Arc<About>>) -> Self {
        Self { about, ..self }
    }

    /// The owner's final outcome.
    pub fn settle(token: Token, response: Arc<Response>) -> Self {
        let next = Next::Completed { settled_by: SettledBy::Owner, response, token: None };
        Self::by_owner(token, RecordEvent::Settle, next)
    }

    /// The owner's, under `recovery = "fail"`: a final outcome that the route's rule dictates.
    pub fn settle_by_policy(token: Token, response: Arc<Response>) -> Self {
        let next = Next::Completed { settled_by: SettledBy::Policy, response, token: None };
        Self::by_owner(token, RecordEvent::Settle, next)
    }

    /// The owner, who knows that nothing was executed, gives the claim back: attempt 1 to absent, a later one to what
    /// it was taken from.
    pub fn release(token: Token, taken_from: Option<TakenFrom>) -> Self {
        let next = match taken_from {
            None => Next::Absent,
            Some(TakenFrom::Unknown { since }) => Next::Unknown { since: Some(since) },
            Some(TakenFrom::Released { expires_at }) => {
                Next::Released { expires_at: Some(expires_at) }
            }
        };
        Self::by_owner(token, RecordEvent::Release, next)
    }

    /// The owner sent, and has no whole answer.
    pub fn mark_unknown(token: Token) -> Self {
        if planted(Planted::ReleaseOnError) {
            return Self::release(token, None);
        }
        Self::by_owner(token, RecordEvent::MarkUnknown, Next::Unknown { since: None })
    }

    /// The owner of a running record was silent for a whole lease.
    pub fn reap(revision: Revision) -> Self {
        Self::unchanged(revision, Next::Unknown { since: None })
    }

    /// A new attempt on a record that expired or was released.
    pub fn take(record: &Record, is_expired: bool, draft: Draft) -> Self {
        let (attempt, taken_from) = match record.state {
            State::Released { expires_at } if !is_expired => {
                (record.attempt.saturating_add(1), Some(TakenFrom::Released { expires_at }))
            }
            _ => (1, None),
        };
        Self::attempt(record, Takeover { draft, attempt, taken_from, first_claimed_at: None })
    }

    /// A new attempt on an unknown outcome, for an upstream that dedups on the key.
    pub fn redrive(record: &Record, since: StoreTime, draft: Draft) -> Self {
        let attempt = Takeover {
            draft,
            attempt: record.attempt.saturating_add(1),
            taken_from: Some(TakenFrom::Unknown { since }),
            first_claimed_at: Some(record.first_claimed_at),
        };
        Self::attempt(record, attempt)
    }

    /// Someone who is not the owner writes the outcome of an unknown record.
    pub fn settle_for(
        record: &Record,
        settled_by: SettledBy,
        response: Arc<Response>,
    ) -> Option<Self> {
        let State::Unknown { .. } = record.state else {
            return None;
        };
        let next = Next::Completed { settled_by, response, token: Some(Token::random()) };
        Some(Self::unchanged(record.revision(), next))
    }

    /// Someone vouches that an unknown outcome was not executed. Refused until the owner can no longer
    /// be sending, unless `forced`.
    pub fn release_for(record: &Record, now: StoreTime, forced: bool) -> Option<Self> {
        let State::Unknown { since } = record.state else {
            return None;
        };
        let is_quiet = since.plus_ms(record.quiet_ms) <= now;
        let next = Next::Released { expires_at: None };
        (is_quiet || forced).then(|| Self::unchanged(record.revision(), next))
    }

    /// An operator deletes a completed record.
    pub fn forget(record: &Record) -> Option<Self> {
        let State::Completed { .. } = record.state else {
            return None;
        };
        Some(Self::unchanged(record.revision(), Next::Absent))
    }

    /// An operator has the answer of a completed record removed, and with it what tells of the request: the text of the
    /// key, host and path. State, status and expiry stay, so that a retry is still refused.
    pub fn erase(record: &Record) -> Option<Self> {
        let State::Completed { expires_at, settled_by, response } = &record.state else {
            return None;
        };
        let response = Arc::new(response.without_body(NotKept::Erased));
        let (expires_at, settled_by) = (*expires_at, *settled_by);
        let erased = Record {
            token: Token::random(),
            count: 1,
            key: KeyText::erased(),
            target: record.sent_as().into(),
            state: State::Completed { expires_at, settled_by, response },
            ..record.clone()
        };
        Some(Self::unchanged(record.revision(), Next::Replaced(Box::new(erased))))
    }

    fn by_owner(token: Token, event: RecordEvent, next: Next) -> Self {
        Self { guard: Guard::Owner { token, states: event.states() }, next, about: None }
    }

    fn attempt(record: &Record, attempt: Takeover) -> Self {
        Self::unchanged(record.revision(), Next::Running(Box::new(attempt)))
    }

    fn unchanged(revision: Revision, next: Next) -> Self {
        Self { guard: Guard::Unchanged(revision), next, about: None }
    }
}
