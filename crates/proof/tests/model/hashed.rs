//! Records and writes as parts of a state: hashed by everything that can differ in the model.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use onlyonce::engine::Write;
use onlyonce::record::{Kept, Record, Response, State, TakenFrom};
use onlyonce::store::{Guard, Next};

/// A record in the model's store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held(Arc<Record>);

impl Held {
    pub(crate) fn new(record: Record) -> Self {
        Self(Arc::new(record))
    }
}

impl Deref for Held {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0
    }
}

impl Hash for Held {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let record: &Record = self;
        record.revision().hash(hasher);
        record.attempt.hash(hasher);
        record.state.kind().hash(hasher);
        match &record.state {
            State::Running { lease_until } => lease_until.hash(hasher),
            State::Unknown { since } => since.hash(hasher),
            State::Released { expires_at } => expires_at.hash(hasher),
            State::Completed { expires_at, response, .. } => {
                (expires_at, answer_of(response)).hash(hasher);
            }
        }
        taken_from(record.taken_from).hash(hasher);
        record.first_claimed_at.hash(hasher);
        record.fingerprint.raw.hash(hasher);
    }
}

/// A write on its way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked(pub(crate) Arc<Write>);

impl Asked {
    pub(crate) fn new(write: Write) -> Self {
        Self(Arc::new(write))
    }
}

impl Hash for Asked {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match &self.0.guard {
            Guard::Owner { token, .. } => token.hash(hasher),
            Guard::Unchanged(revision) => revision.hash(hasher),
        }
        std::mem::discriminant(&self.0.next).hash(hasher);
        match &self.0.next {
            Next::Absent => {}
            Next::Running(takeover) => {
                (takeover.draft.token, takeover.draft.not_after, takeover.attempt).hash(hasher);
                (taken_from(takeover.taken_from), takeover.first_claimed_at).hash(hasher);
            }
            Next::Unknown { since } => since.hash(hasher),
            Next::Released { expires_at } => expires_at.hash(hasher),
            Next::Completed { response, token, .. } => (answer_of(response), token).hash(hasher),
            Next::Replaced(_) => unreachable!("nobody erases an answer of the model"),
        }
    }
}

/// The number in the body of a response: which answer it is.
pub(crate) fn answer_of(response: &Response) -> u8 {
    match &response.body {
        Kept::Bytes { body, .. } => body[0],
        Kept::No(_) | Kept::Sealed(_) => {
            unreachable!("every answer of the model is kept, in clear")
        }
    }
}

/// The number of the answer that a write makes final.
pub(crate) fn answer_of_write(write: &Write) -> Option<u8> {
    match &write.next {
        Next::Completed { response, .. } => Some(answer_of(response)),
        _ => None,
    }
}

fn taken_from(from: Option<TakenFrom>) -> Option<(bool, i64)> {
    from.map(|from| match from {
        TakenFrom::Unknown { since } => (true, since.as_ms()),
        TakenFrom::Released { expires_at } => (false, expires_at.as_ms()),
    })
}
