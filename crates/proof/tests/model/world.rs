//! Everything that can differ between two moments of the model.

use onlyonce::clock::StoreTime;
use onlyonce::engine::table::{Phase, RecordEvent};
use onlyonce::record::Revision;

use crate::clocks::{Clocks, TTL_MS};
use crate::hashed::{Asked, Held};
use crate::request::Request;

/// The store, the requests that are under way, what was done and told, and what may still happen.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct World {
    pub(crate) clocks: Clocks,
    pub(crate) record: Option<Held>,
    /// When the record was completed, or released by an operator, on a clock that nobody sets.
    pub(crate) ended_at: Option<i64>,
    /// When its owner last claimed or renewed it, on the same clock.
    pub(crate) beat_at: i64,
    /// The copy of a completed record that one node answers from.
    pub(crate) copy: Option<Copied>,
    pub(crate) requests: [Request; REQUESTS],
    /// Calls whose caller has no answer and that the store has not seen yet.
    pub(crate) late: Vec<Late>,
    /// What the reaper saw, and when.
    pub(crate) sight: Option<(Revision, i64)>,
    pub(crate) life: usize,
    /// What happened in each life of the key: a life ends when the key is forgotten.
    pub(crate) lives: [Life; LIVES],
    pub(crate) budget: Budget,
    pub(crate) wrong: Option<Wrong>,
}

/// The first two send the same request, the last another one with their key.
pub(crate) const REQUESTS: usize = 3;
/// Forgotten by time, and by an operator.
const LIVES: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Hash)]
pub(crate) struct Life {
    /// When it was first claimed, on a clock that nobody sets.
    pub(crate) begun_at: i64,
    /// How often the work was done.
    pub(crate) effects: u8,
    /// The answer of the first execution.
    pub(crate) first: Option<u8>,
    /// The answer that clients were told.
    pub(crate) told: Option<u8>,
    /// An operator released it although the work could still be done: that is outside of the promise.
    pub(crate) is_excused: bool,
    pub(crate) end: Option<End>,
}

/// An entry of `once/cache.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub(crate) struct Copied {
    pub(crate) answer: u8,
    /// Whether it answers the last request, and not the first two.
    pub(crate) is_other: bool,
    pub(crate) expires_at: StoreTime,
    pub(crate) read_at: i64,
    /// The life of the key that it belongs to.
    pub(crate) life: usize,
}

/// Why a key was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Swept,
    Taken,
    Forgotten,
}

/// A promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    DoneTwice,
    TwoAnswers,
    AnswerToAnotherRequest,
    /// A node answers from its memory although the key has been forgotten.
    CopyOutlivesRecord,
    /// A completed record is neither kept as it is nor forgotten.
    CompletedReplaced,
    ForgottenEarly,
    /// The work was done, and no record says so.
    DoneAndForgotten,
    /// A released key is neither free nor completed by its owner.
    ReleasedHeld,
    /// An unknown outcome is called running again, and no new attempt has begun.
    UnknownRevived,
    /// Since when an outcome is unknown has changed.
    UnknownSinceMoved,
    /// A new attempt does not remember what it returns to if it is not sent.
    TakenFromForgotten,
    /// Others have changed a running record, although its owner was not silent for a lease.
    TakenFromTheLiving,
    /// The owner's answer was refused, although the record is its own and has none.
    AnswerLost,
    /// An attempt that was never sent has ended, and its key is held.
    NotGivenBack,
    /// The owner has ended, and its record is running.
    LeftRunning,
    /// A late copy has claimed the key, and nobody will ever end that claim.
    ClaimOfNobody,
    /// The owner has renewed its lease, and does not have a whole one.
    LeaseNotKept,
    /// A request came in time to a key that is free, and was refused.
    FreeKeyRefused,
    /// A route sends unknown outcomes again, and a retry was refused.
    NotRedriven,
    /// It was sent again when the service may have forgotten the key.
    RedrivenLate,
    /// The engine has done what its table does not have.
    NotInTheTable,
}

/// A call that may still reach the store.
#[derive(Clone, Debug, Hash, PartialEq)]
pub(crate) enum Late {
    Claim { request: usize, token: u8, not_after: StoreTime },
    Swap(Event, Asked),
}

/// An event of the table, and the phase that the record was in when whoever writes has judged it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Event(pub(crate) RecordEvent, pub(crate) Option<Phase>);

impl std::hash::Hash for Event {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        std::mem::discriminant(&self.0).hash(hasher);
        self.1.map(|phase| std::mem::discriminant(&phase)).hash(hasher);
    }
}

/// How much of each may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub(crate) struct Budget {
    /// Requests that clients send, retries among them.
    pub(crate) sent: u8,
    /// Processes that die.
    pub(crate) crashes: u8,
    /// Store calls that are late, without an answer, or refused.
    pub(crate) faults: u8,
    /// Steps of time after which a claim may not arrive any more; two of them are more than a lease.
    pub(crate) short: u8,
    /// Steps of time longer than the time to live.
    pub(crate) long: u8,
    /// Times that someone sets the store's clock.
    pub(crate) jumps: u8,
    /// Things that operators do.
    pub(crate) operators: u8,
    /// Callers whose deadline passes while the work is done.
    pub(crate) deadlines: u8,
}

impl World {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            clocks: Clocks::default(),
            record: None,
            ended_at: None,
            beat_at: 0,
            copy: None,
            requests: Default::default(),
            late: Vec::new(),
            sight: None,
            life: 0,
            lives: [Life::default(); LIVES],
            budget,
            wrong: None,
        }
    }

    pub(crate) fn go_wrong(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    /// The work was done by a request that claimed in `life`; the answer that the service gives.
    pub(crate) fn execute(&mut self, life: usize, answer: u8, dedups: bool) -> u8 {
        let here = &mut self.lives[life];
        if !dedups || here.effects == 0 {
            here.effects += 1;
        }
        let answer = if dedups { *here.first.get_or_insert(answer) } else { answer };
        here.first.get_or_insert(answer);
        if here.effects > 1 && !here.is_excused {
            self.go_wrong(Wrong::DoneTwice);
        }
        answer
    }

    /// A client was told an answer that belongs to `life`.
    pub(crate) fn tell(&mut self, life: usize, answer: u8) {
        if *self.lives[life].told.get_or_insert(answer) != answer {
            self.go_wrong(Wrong::TwoAnswers);
        }
    }

    /// The key is forgotten: it may run again.
    pub(crate) fn end_life(&mut self, end: End) {
        let lived = self.ended_at.take().map(|since| self.clocks.boot_ms - since);
        if end != End::Forgotten && lived.is_none_or(|lived| lived < TTL_MS) {
            self.go_wrong(Wrong::ForgottenEarly);
        }
        self.lives[self.life].end = Some(end);
        self.life = (self.life + 1).min(LIVES - 1);
        self.lives[self.life].begun_at = self.clocks.boot_ms;
    }
}
