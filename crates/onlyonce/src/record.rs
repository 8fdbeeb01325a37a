//! What the store holds for an operation.

pub mod codec;
mod response;

use std::sync::Arc;

pub use response::{Kept, NotKept, Response};

use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::planted::{Planted, planted};
use crate::scope::Principal;

/// Everything that is known of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The attempt that owns it; with `count`, its [`Revision`].
    pub token: Token,
    /// Writes under this token.
    pub count: u64,
    /// 1, 2, 3…
    pub attempt: u32,
    /// Where the operation stands.
    pub state: State,
    /// What this attempt was taken from, if it is not the first: it returns there if it was not executed.
    pub taken_from: Option<TakenFrom>,
    /// The key as the client sent it.
    pub key: KeyText,
    /// What makes a request "the same".
    pub fingerprint: Fingerprint,
    /// Digest of who sent it.
    pub principal: Principal,
    /// The route that claimed it.
    pub route: Arc<str>,
    /// How the request was sent, in a word without spaces; and, where the route may ask later what became of the
    /// operation, host and path, with spaces between. Empty where neither is needed.
    pub target: Arc<str>,
    /// When the first attempt that may have been executed was claimed.
    pub first_claimed_at: StoreTime,
    /// How long the owner may be silent.
    pub lease_ms: i64,
    /// How long after it became unknown nobody may release it: lease and upstream timeout together.
    pub quiet_ms: i64,
    /// How long it is kept once completed.
    pub ttl_ms: i64,
}

impl Record {
    /// The revision that a writer who read this record names.
    pub fn revision(&self) -> Revision {
        Revision { token: self.token, count: self.count }
    }

    /// Whether its time to live is over at `now`. Running and unknown records never expire.
    pub fn is_expired(&self, now: StoreTime) -> bool {
        self.expires_at().is_some_and(|expires_at| expires_at <= now)
    }

    /// When its time to live is over; `None` while it is running or unknown.
    pub fn expires_at(&self) -> Option<StoreTime> {
        match self.state {
            State::Running { .. } if planted(Planted::RunningExpires) => {
                Some(self.first_claimed_at.plus_ms(self.ttl_ms))
            }
            State::Running { .. } | State::Unknown { .. } => None,
            State::Released { expires_at } | State::Completed { expires_at, .. } => {
                Some(expires_at)
            }
        }
    }

    /// The word for how the request was sent.
    pub fn sent_as(&self) -> &str {
        sent_as(&self.target)
    }

    /// The response of a completed record.
    pub fn response(&self) -> Option<&Arc<Response>> {
        match &self.state {
            State::Completed { response, .. } => Some(response),
            _ => None,
        }
    }
}

/// The word at the beginning of a target.
pub(crate) fn sent_as(target: &str) -> &str {
    target.split(' ').next().unwrap_or_default()
}

/// Where an operation stands. *Expired* is not here: it is derived from the store's time at each read.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Claimed; its owner is at work, or died.
    Running {
        /// When its owner has been silent for too long.
        lease_until: StoreTime,
    },
    /// It may have been executed, and nobody knows. Never run again by itself.
    Unknown {
        /// When it became unknown.
        since: StoreTime,
    },
    /// Someone vouched that it was not executed; the next claim takes it.
    Released {
        /// When it is forgotten.
        expires_at: StoreTime,
    },
    /// Its outcome is final.
    Completed {
        /// When it is forgotten.
        expires_at: StoreTime,
        /// Who wrote the outcome.
        settled_by: SettledBy,
        /// What a retry is answered with.
        response: Arc<Response>,
    },
}

impl State {
    /// The state without what it carries.
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Running { .. } => StateKind::Running,
            Self::Unknown { .. } => StateKind::Unknown,
            Self::Released { .. } => StateKind::Released,
            Self::Completed { .. } => StateKind::Completed,
        }
    }
}

/// The name of a stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// See [`State::Running`].
    Running,
    /// See [`State::Unknown`].
    Unknown,
    /// See [`State::Released`].
    Released,
    /// See [`State::Completed`].
    Completed,
}

impl StateKind {
    /// All four, in the order of a life.
    pub const ALL: [Self; 4] = [Self::Running, Self::Unknown, Self::Released, Self::Completed];

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unknown => "unknown",
            Self::Released => "released",
            Self::Completed => "completed",
        }
    }
}

/// A set of stored states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StateSet(u8);

impl StateSet {
    /// The set of `kinds`.
    pub const fn of(kinds: &[StateKind]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < kinds.len() {
            bits |= 1 << kinds[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// Whether `kind` is one of them.
    pub const fn contains(self, kind: StateKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// A bit for each of them, in the order of a life.
    #[cfg(feature = "redis")]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// The same without the completed state, for the completion of an owner: the completed record may be its own, and
    /// must be judged.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) const fn open_bits(self) -> u8 {
        self.0 & !(1 << StateKind::Completed as u8)
    }
}

/// What a later attempt was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenFrom {
    /// A redrive of an unknown outcome.
    Unknown {
        /// When that outcome became unknown.
        since: StoreTime,
    },
    /// A claim of a released record.
    Released {
        /// When the released record would have been forgotten.
        expires_at: StoreTime,
    },
}

/// Who wrote a final outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// The attempt that executed it.
    Owner,
    /// The rule of the route: `recovery = "fail"`, or `hold_max` over.
    Policy,
    /// The answer of the upstream when it was asked later.
    Reconcile,
    /// A person.
    Operator,
}

/// The text of a key as it is stored. It is never shown in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(Arc<str>);

impl KeyText {
    /// The text as a store read it.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text of a key that was erased.
    pub fn erased() -> Self {
        Self::new("")
    }

    /// The text as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text that the client sent; `None` if it was erased, or is sealed and did not open.
    pub fn as_sent(&self) -> Option<&str> {
        let is_sent = !self.0.is_empty() && !self.0.starts_with(SEALED_KEY_MARK);
        is_sent.then_some(&*self.0)
    }

    /// The text for people; in brackets, what became of it.
    pub fn shown(&self) -> &str {
        match self.as_sent() {
            Some(text) => text,
            None if self.0.is_empty() => "(erased)",
            None => "(sealed)",
        }
    }
}

/// What the text of a sealed key begins with. No key that a client sends has such a character.
pub(crate) const SEALED_KEY_MARK: char = '\u{1}';

impl std::fmt::Debug for KeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyText(..)")
    }
}

/// 128 random bits, new for each attempt: who may write.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A token that nobody else has, from the operating system's randomness.
    ///
    /// # Panics
    /// If the operating system has no randomness to give: without it no attempt can be told from another.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        Self(bytes)
    }

    /// The token with these bytes, as a store read it.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, as a store writes them.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// Names one write of one record. It never comes back for an id, not even after the record was
/// deleted and made anew, because its token is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revision {
    /// The attempt.
    pub token: Token,
    /// The write under it.
    pub count: u64,
}
