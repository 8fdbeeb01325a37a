//! What the scripts are given, in their order. `lua/` says what each of them is.

use super::keys::{SLOTS, slot};
use super::script::{Invocation, Script};
use super::value;
use super::{SLOTS_PER_CALL, Shared, last_of};
use crate::clock::StoreTime;
use crate::record::{StateKind, StateSet, Token};
use crate::scope::OperationId;
use crate::store::{Draft, Guard, Lease, Next, Scan};

impl Shared {
    pub(super) fn load(&self, id: OperationId) -> Invocation {
        self.one(Script::Load, id, [])
    }

    pub(super) fn claim(&self, draft: &Draft) -> Invocation {
        let own = [
            draft.token.as_bytes().to_vec(),
            text(bounded(draft.not_after.as_ms())),
            text(bounded(draft.lease.as_ms())),
            draft.ttl_ms.to_le_bytes().to_vec(),
            1_u32.to_le_bytes().to_vec(),
            value::details(draft),
        ];
        self.one(Script::Claim, draft.id, own)
    }

    pub(super) fn renew(&self, id: OperationId, token: Token, lease: Lease) -> Invocation {
        let own = [token.as_bytes().to_vec(), text(bounded(lease.as_ms()))];
        self.one(Script::Renew, id, own)
    }

    pub(super) fn swap(&self, id: OperationId, guard: Guard, to: &Next) -> Invocation {
        let own = guard_parts(guard).into_iter().chain(next_parts(to)).chain(attempt_parts(to));
        self.one(Script::Swap, id, own)
    }

    fn one(
        &self,
        script: Script,
        id: OperationId,
        own: impl IntoIterator<Item = Vec<u8>>,
    ) -> Invocation {
        let [wall, epoch, floor] = self.time();
        let mut args =
            vec![id.as_bytes().to_vec(), wall, epoch, floor, self.names.channel().into()];
        args.extend(own);
        Invocation { script, keys: self.names.of_record(id), args }
    }

    /// A page from the slots `first` to `last`.
    pub(super) fn scan(&self, query: &Scan, first: u16, last: u16, limit: usize) -> Invocation {
        let after = query.after.map(|after| OperationId::from_bytes(after.0.to_be_bytes()));
        let after = after.filter(|after| slot(*after) == first);
        let own = [
            after.map_or_else(Vec::new, |after| after.as_bytes().to_vec()),
            text(limit),
            text(bits(query.states)),
            text(PAGE_BYTES_MAX),
        ];
        self.many(Script::Scan, first, last, own)
    }

    /// Nothing is deleted by a time after `plausible`.
    pub(super) fn sweep(&self, first: u16, limit: usize, plausible: i64) -> Invocation {
        let own = [text(limit), text(bounded(plausible))];
        self.many(Script::Sweep, first, last_of(first), own)
    }

    /// The calls that hold the clock, or trust it again from `epoch` on. To hold it only while the beat has the
    /// epoch `only_in`.
    pub(super) fn holds(
        &self,
        held: bool,
        epoch: i64,
        only_in: Option<i64>,
    ) -> impl Iterator<Item = Invocation> {
        let firsts = (0..SLOTS).step_by(usize::from(SLOTS_PER_CALL));
        firsts.map(move |first| {
            let own = [text(u8::from(held)), text(epoch), only_in.map_or_else(Vec::new, text)];
            self.many(Script::Hold, first, last_of(first), own)
        })
    }

    /// A look at the beat, and a beat if this node trusts the clock.
    pub(super) fn beat(&self, trusts: bool) -> Invocation {
        let plausible = text(bounded(self.beats.time.plausible()));
        let own = [text(u8::from(trusts)), plausible, text(self.beats.name())];
        self.many(Script::Beat, 0, SLOTS - 1, own)
    }

    pub(super) fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Invocation {
        let given = |value: Option<&str>| {
            [text(u8::from(value.is_some())), text(value.unwrap_or_default())]
        };
        let ([has_from, from], [has_to, to]) = (given(from), given(to));
        let args = vec![text(name), has_from, from, has_to, to];
        Invocation { script: Script::Check, keys: self.names.of_check_values(), args }
    }

    fn many(
        &self,
        script: Script,
        first: u16,
        last: u16,
        own: impl IntoIterator<Item = Vec<u8>>,
    ) -> Invocation {
        let [wall, epoch, floor] = self.time();
        let prefix = self.names.prefix().into();
        let mut args = vec![prefix, wall, epoch, floor, text(first), text(last)];
        args.extend(own);
        Invocation { script, keys: self.names.of_slots(first), args }
    }

    /// The wall clock of a test, or nothing: then it is the server's. And what time may not fall below.
    fn time(&self) -> [Vec<u8>; 3] {
        let wall = self.clock.as_ref().map_or_else(Vec::new, |clock| text(clock.wall().as_ms()));
        let (_, highest) = self.answers.time.known();
        [wall, text(self.answers.name()), text(highest)]
    }
}

fn guard_parts(guard: Guard) -> [Vec<u8>; 4] {
    let none = 0_u64.to_le_bytes().to_vec();
    match guard {
        Guard::Owner { token, states } => {
            [b"owner".to_vec(), token.as_bytes().to_vec(), text(bits(states)), none]
        }
        Guard::Unchanged(revision) => [
            b"unchanged".to_vec(),
            revision.token.as_bytes().to_vec(),
            text(0),
            revision.count.to_le_bytes().to_vec(),
        ],
    }
}

/// Its name, its moment, its token, and its outcome with a checksum.
fn next_parts(to: &Next) -> [Vec<u8>; 5] {
    let moment =
        |at: Option<StoreTime>| at.map_or_else(Vec::new, |at| at.as_ms().to_le_bytes().to_vec());
    let (name, at, token) = match to {
        Next::Absent => ("absent", None, None),
        Next::Running(attempt) => ("running", None, Some(attempt.draft.token)),
        Next::Unknown { since } => ("unknown", *since, None),
        Next::Released { expires_at } => ("released", *expires_at, None),
        Next::Completed { token, .. } => ("completed", None, *token),
    };
    let outcome = match to {
        Next::Completed { settled_by, response, .. } => value::outcome(*settled_by, response),
        _ => Vec::new(),
    };
    let checksum = value::checksum(&outcome).to_vec();
    let token = token.map_or_else(Vec::new, |token| token.as_bytes().to_vec());
    [name.into(), moment(at), token, outcome, checksum]
}

/// What only a new attempt has.
fn attempt_parts(to: &Next) -> Vec<Vec<u8>> {
    let Next::Running(attempt) = to else {
        return Vec::new();
    };
    let first = attempt.first_claimed_at;
    vec![
        text(bounded(attempt.draft.not_after.as_ms())),
        text(bounded(attempt.draft.lease.as_ms())),
        first.map_or_else(Vec::new, |first| first.as_ms().to_le_bytes().to_vec()),
        attempt.draft.ttl_ms.to_le_bytes().to_vec(),
        attempt.attempt.to_le_bytes().to_vec(),
        value::details_of(attempt),
    ]
}

fn bits(states: StateSet) -> u8 {
    let bit = |kind: StateKind| u8::from(states.contains(kind)) << kind as u8;
    StateKind::ALL.into_iter().map(bit).sum()
}

fn text(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A time that the doubles of Lua hold exactly; what is further away is the end of time there.
fn bounded(ms: i64) -> i64 {
    ms.clamp(-EXACT_MAX, EXACT_MAX)
}

const EXACT_MAX: i64 = 1 << 53;
/// After so many bytes a page ends, however few records it has.
const PAGE_BYTES_MAX: usize = 4 << 20;
