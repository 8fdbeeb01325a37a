//! One request on its way, and the node that has it.

use std::sync::Arc;

use bytes::Bytes;
use onlyonce::clock::StoreTime;
use onlyonce::engine::Write;
use onlyonce::engine::table::RecordEvent;
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{Kept, KeyText, Response, TakenFrom, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::{Draft, Lease};

use crate::hashed::Asked;
use crate::world::{Event, LEASE_MS, TTL_MS};

/// Where a request stands.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(crate) enum Request {
    #[default]
    NotSent,
    /// The claim is on its way; `is_unsure`: a copy of it may be in the store.
    Claiming { token: u8, not_after: StoreTime, is_unsure: bool },
    /// It takes over a record that nobody has.
    Taking { token: u8, write: Asked, event: Event, is_unsure: bool },
    /// The claim is its own; it has not judged yet whether the lease has its margin.
    Claimed(Owner),
    /// It will send, however long that takes.
    Sending(Owner),
    /// The outcome is on its way to the store, again and again.
    Settling { owner: Owner, write: Asked, event: Event, answer: Option<u8>, is_unsure: bool },
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
    /// On the node's own clock.
    pub(crate) claimed_at: i64,
    /// The life of the key that it was claimed in.
    pub(crate) life: usize,
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
    Reused,
    InProgress,
    Unknown,
    StoreDown,
    NotDone,
    /// Its work was done, and another has the record.
    Fenced,
}

impl Owner {
    pub(crate) fn settle(self, write: Write, event: RecordEvent, answer: Option<u8>) -> Request {
        Request::Settling { owner: self, write: Asked(write), event: Event(event), answer, is_unsure: false }
    }

    pub(crate) fn token(self) -> Token {
        token(self.token)
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
        lease: Lease::new(std::time::Duration::from_millis(LEASE_MS.unsigned_abs())),
        quiet_ms: 2 * LEASE_MS,
        ttl_ms: TTL_MS,
        not_after,
    }
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

/// Answers that are not an execution's.
pub(crate) const BY_OPERATOR: u8 = 201;
pub(crate) const BY_POLICY: u8 = 202;
pub(crate) const BY_RECONCILE: u8 = 203;
/// The token of whoever settles without being the owner.
pub(crate) const STRANGER: u8 = 250;
