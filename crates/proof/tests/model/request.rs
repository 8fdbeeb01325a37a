//! One request on its way, and the node that has it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce::clock::StoreTime;
use onlyonce::engine::Write;
use onlyonce::engine::table::RecordEvent;
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{Kept, KeyText, Response, TakenFrom, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::{Draft, Lease, Next};

use crate::clocks::{LEASE_MS, TTL_MS};
use crate::hashed::Asked;
use crate::world::Event;

/// Where a request stands.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(crate) enum Request {
    #[default]
    NotSent,
    /// The claim is on its way; `is_unsure`: a copy of it may be in the store.
    Claiming { token: u8, sent_at: i64, not_after: StoreTime, is_unsure: bool },
    /// It takes over a record that nobody has.
    Taking { token: u8, sent_at: i64, write: Asked, event: Event, is_unsure: bool },
    /// The claim is its own; it has not judged yet whether the lease has its margin.
    Claimed(Owner),
    /// It will send, however long that takes.
    Sending(Owner),
    /// The outcome is on its way to the store, again and again.
    Settling { owner: Owner, write: Asked, event: Event, answer: Option<Answer>, is_unsure: bool },
    /// Its caller was told that the store is down; the claim is released until no copy of it can arrive.
    Disowned { token: u8, from: From, not_after: StoreTime },
    /// Its caller was told.
    Told(Told),
    /// Its process died.
    Dead,
}

/// A claim of this node.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub(crate) struct Owner {
    pub(crate) token: u8,
    pub(crate) attempt: u32,
    pub(crate) from: From,
    /// When the first copy of the claim was sent, or the last renewal, on the node's own clock.
    pub(crate) claimed_at: i64,
    /// The life of the key that it was claimed in.
    pub(crate) life: usize,
}

/// An answer to be told, and the time right before its first copy was sent: trusted, and on the node's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub(crate) struct Answer {
    pub(crate) told: u8,
    pub(crate) at: StoreTime,
    pub(crate) boot_ms: i64,
}

/// What a claim was taken from, as it can be hashed.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) enum From {
    Nothing,
    Unknown(StoreTime),
    Released(StoreTime),
}

impl From {
    pub(crate) fn of(from: Option<TakenFrom>) -> Self {
        match from {
            None => Self::Nothing,
            Some(TakenFrom::Unknown { since }) => Self::Unknown(since),
            Some(TakenFrom::Released { expires_at }) => Self::Released(expires_at),
        }
    }

    pub(crate) fn taken_from(self) -> Option<TakenFrom> {
        match self {
            Self::Nothing => None,
            Self::Unknown(since) => Some(TakenFrom::Unknown { since }),
            Self::Released(expires_at) => Some(TakenFrom::Released { expires_at }),
        }
    }
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Fresh(u8),
    Replay(u8),
    /// A replay from the memory of a node.
    Copy(u8),
    Reused,
    InProgress,
    Unknown,
    StoreDown,
    NotDone,
    /// Its work was done, and another has the record.
    Fenced,
}

impl Request {
    pub(crate) fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Claimed(owner) | Self::Sending(owner) | Self::Settling { owner, .. } => {
                Some(owner)
            }
            _ => None,
        }
    }

    /// The token of the claim that it has, or may get.
    pub(crate) fn claim(&self) -> Option<Token> {
        match self {
            Self::Claiming { token: number, .. }
            | Self::Taking { token: number, .. }
            | Self::Disowned { token: number, .. } => Some(token(*number)),
            _ => self.owner().map(|owner| owner.token()),
        }
    }

    /// Whether it waits for nothing.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self, Self::NotSent | Self::Told(_) | Self::Dead)
    }

    /// A copy of its call may be in the store.
    pub(crate) fn be_unsure(&mut self) {
        if let Self::Claiming { is_unsure, .. }
        | Self::Taking { is_unsure, .. }
        | Self::Settling { is_unsure, .. } = self
        {
            *is_unsure = true;
        }
    }
}

impl Owner {
    /// It has an answer.
    pub(crate) fn answer(self, write: Write, answer: Answer) -> Request {
        self.settle(write, RecordEvent::Settle, Some(answer))
    }

    /// It never sent.
    pub(crate) fn release(self) -> Request {
        let write = Write::release(self.token(), self.from.taken_from());
        self.settle(write, RecordEvent::Release, None)
    }

    /// It sent, and has no answer.
    pub(crate) fn give_up(self) -> Request {
        let write = Write::mark_unknown(self.token());
        self.settle(write, RecordEvent::MarkUnknown, None)
    }

    pub(crate) fn token(self) -> Token {
        token(self.token)
    }

    fn settle(self, write: Write, event: RecordEvent, answer: Option<Answer>) -> Request {
        let (write, event) = (Asked::new(write), Event(event, None));
        Request::Settling { owner: self, write, event, answer, is_unsure: false }
    }
}

/// The claim of a request.
pub(crate) fn draft(request: usize, number: u8, not_after: StoreTime) -> Draft {
    Draft {
        id: OperationId::from_bytes([1; 16]),
        token: token(number),
        key: KeyText::new("k"),
        fingerprint: fingerprint(request),
        principal: Principal::anonymous(),
        route: "POST /".into(),
        target: "key".into(),
        lease: lease(),
        quiet_ms: 2 * LEASE_MS,
        ttl_ms: TTL_MS,
        not_after,
    }
}

pub(crate) fn lease() -> Lease {
    Lease::new(Duration::from_millis(LEASE_MS.unsigned_abs()))
}

/// The last request is another one than the others.
pub(crate) fn fingerprint(request: usize) -> Fingerprint {
    let digest = [u8::from(request == crate::world::REQUESTS - 1); 32];
    Fingerprint { version: Fingerprint::VERSION, canonical: digest, raw: digest }
}

pub(crate) fn token(number: u8) -> Token {
    Token::from_bytes([number; 16])
}

pub(crate) fn response(answer: u8) -> Arc<Response> {
    let body = Kept::Bytes { body: Bytes::copy_from_slice(&[answer]), trailers: None };
    Arc::new(Response { status: http::StatusCode::OK, headers: http::HeaderMap::new(), body })
}

/// The same write with a token that is not random, so that equal states are equal.
pub(crate) fn as_stranger(write: Write) -> Write {
    match write.next {
        Next::Completed { settled_by, response, .. } => {
            let next = Next::Completed { settled_by, response, token: Some(token(STRANGER)) };
            Write { next, ..write }
        }
        _ => write,
    }
}

/// Answers that are not an execution's.
pub(crate) const BY_OPERATOR: u8 = 201;
pub(crate) const BY_POLICY: u8 = 202;
pub(crate) const BY_RECONCILE: u8 = 203;
pub(crate) const WITHOUT_BODY: u8 = 204;
/// The token of whoever settles without being the owner.
pub(crate) const STRANGER: u8 = 250;
