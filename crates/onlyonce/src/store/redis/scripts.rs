//! The scripts: one for each operation, so that its guard and its write are one step of the server. And the keys and
//! arguments of each, in the order that the script in `lua/` names.

use ::redis::Cmd;

use super::keys::{CHANNEL, CHECK_VALUES, Keys, NONE, RUNNING, UNKNOWN, hex};
use super::record_value;
use super::scan_position::{Listing, Position};
use crate::clock::StoreTime;
use crate::record::{Record, State, StateKind, StateSet, Token, codec};
use crate::scope::{IdPrefix, OperationId};
use crate::store::{Draft, Guard, Lease, Next, cas};

macro_rules! scripts {
    ($($name:ident: $($part:literal)+;)+) => {
        /// A script of the store, or of the filter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Script { $($name,)+ }

        impl Script {
            /// In the order of the scripts, which is that of their digests in a connection.
            pub(super) const TEXTS: &[&str] = &[$(concat!($(include_str!($part)),+),)+];
        }
    };
}

scripts! {
    Load: "lua/common.lua" "lua/record.lua" "lua/load.lua";
    Claim: "lua/common.lua" "lua/record.lua" "lua/claim.lua";
    Swap: "lua/common.lua" "lua/record.lua" "lua/swap.lua";
    Renew: "lua/common.lua" "lua/record.lua" "lua/renew.lua";
    Scan: "lua/common.lua" "lua/scan.lua";
    CheckValue: "lua/common.lua" "lua/check.lua";
    Size: "lua/size.lua";
    Admit: "lua/admit.lua";
    FilterKeep: "../layered/keep.lua";
    FilterForget: "../layered/forget.lua";
    FilterFind: "../layered/find.lua";
}

/// A call of a script, with its keys and arguments.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    pub(crate) script: Script,
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<Vec<u8>>,
}

impl ScriptCall {
    /// `EVALSHA` with the digest of the script, or `EVAL` with its text for a server that has forgotten the script.
    pub(super) fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = ::redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}

impl Keys {
    pub(super) fn load(&self, id: OperationId) -> ScriptCall {
        self.about_record(Script::Load, id, [])
    }

    pub(super) fn claim(&self, draft: &Draft) -> ScriptCall {
        let [not_after, lease, ttl] = draft_parts(draft);
        let (token, attempt) = (draft.token.as_bytes().to_vec(), 1_u32.to_le_bytes().to_vec());
        let own = [
            token,
            not_after,
            lease,
            ttl,
            attempt,
            codec::encode(&cas::first_attempt(draft, NO_TIME)),
        ];
        self.about_record(Script::Claim, draft.id, own)
    }

    pub(super) fn renew(&self, id: OperationId, token: Token, lease: Lease) -> ScriptCall {
        let own = [token.as_bytes().to_vec(), text(bounded(lease.as_ms()))];
        self.about_record(Script::Renew, id, own)
    }

    pub(super) fn swap(&self, id: OperationId, guard: Guard, to: &Next) -> ScriptCall {
        let own = guard_parts(guard).into_iter().chain(next_parts(to)).chain(attempt_parts(to));
        self.about_record(Script::Swap, id, own)
    }

    fn about_record(
        &self,
        script: Script,
        id: OperationId,
        own: impl IntoIterator<Item = Vec<u8>>,
    ) -> ScriptCall {
        let [none, running, unknown] = [NONE, RUNNING, UNKNOWN].map(|name| self.named(name));
        let keys = vec![none, self.record(id), running, unknown];
        let mut args = vec![text(hex(id)), text(self.named(CHANNEL))];
        args.extend(own);
        ScriptCall { script, keys, args }
    }

    /// How many keys the database has.
    pub(super) fn size(&self) -> ScriptCall {
        ScriptCall { script: Script::Size, keys: vec![self.named(NONE)], args: Vec::new() }
    }

    /// Where all keys are listed, ids must begin with `prefix`.
    pub(super) fn scan(
        &self,
        prefix: Option<IdPrefix>,
        states: StateSet,
        from: Position,
        limit: usize,
    ) -> ScriptCall {
        let digits =
            |prefix: IdPrefix| hex(prefix.first_id())[..2 * prefix.as_bytes().len()].into();
        let keys = match from.listing {
            Listing::Running => vec![self.named(NONE), self.named(RUNNING)],
            Listing::Unknown => vec![self.named(NONE), self.named(UNKNOWN)],
            Listing::AllKeys => vec![self.named(NONE)],
        };
        let args = vec![
            text(self.prefix()),
            text(bits(states)),
            text(limit),
            text(PAGE_BYTES_MAX),
            text(from.number),
            text(from.place),
            prefix.map_or_else(Vec::new, digits),
        ];
        ScriptCall { script: Script::Scan, keys, args }
    }

    pub(super) fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> ScriptCall {
        let [has_from, has_to] = [from, to].map(|given| text(u8::from(given.is_some())));
        let [from, to] = [from, to].map(|given| text(given.unwrap_or_default()));
        let keys = vec![self.named(NONE), self.named(CHECK_VALUES)];
        let args = vec![text(name), has_from, from, has_to, to];
        ScriptCall { script: Script::CheckValue, keys, args }
    }
}

/// Its kind, token, states and count.
fn guard_parts(guard: Guard) -> [Vec<u8>; 4] {
    let (kind, token, states, count) = match guard {
        Guard::Owner { token, states } => ("owner", token, bits(states), 0),
        Guard::Unchanged(revision) => ("unchanged", revision.token, 0, revision.count),
    };
    [kind.into(), token.as_bytes().to_vec(), text(states), count.to_le_bytes().to_vec()]
}

/// Its name, moment and token, and its outcome with a checksum.
fn next_parts(to: &Next) -> [Vec<u8>; 5] {
    let (name, at, token) = match to {
        Next::Absent => ("absent", None, None),
        Next::Running(attempt) => ("running", None, Some(attempt.draft.token)),
        Next::Unknown { since } => ("unknown", *since, None),
        Next::Released { expires_at } => ("released", *expires_at, None),
        Next::Completed { token, .. } => ("completed", None, *token),
        Next::Replaced(record) => ("replaced", record.expires_at(), Some(record.token)),
    };
    let outcome = match to {
        Next::Completed { settled_by, response, .. } => {
            codec::encode_outcome(*settled_by, response)
        }
        Next::Replaced(record) => match &record.state {
            State::Completed { settled_by, response, .. } => {
                codec::encode_outcome(*settled_by, response)
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let checksum = record_value::checksum(&outcome).to_le_bytes().to_vec();
    let token = token.map_or_else(Vec::new, |token| token.as_bytes().to_vec());
    [name.into(), moment(at), token, outcome, checksum]
}

/// What only a new attempt has, and a record that replaces another.
fn attempt_parts(to: &Next) -> Vec<Vec<u8>> {
    let attempt = match to {
        Next::Running(attempt) => attempt,
        Next::Replaced(record) => return replaced_parts(record),
        _ => return Vec::new(),
    };
    let [not_after, lease, ttl] = draft_parts(&attempt.draft);
    let (first, number) =
        (moment(attempt.first_claimed_at), attempt.attempt.to_le_bytes().to_vec());
    vec![not_after, lease, first, ttl, number, codec::encode(&cas::later_attempt(attempt, NO_TIME))]
}

/// The same places, of which a record that replaces another has no use for the first two. Its state is not among its
/// details.
fn replaced_parts(record: &Record) -> Vec<Vec<u8>> {
    let (first, ttl) = (record.first_claimed_at, record.ttl_ms.to_le_bytes().to_vec());
    let details = Record { state: State::Running { lease_until: NO_TIME }, ..record.clone() };
    let number = record.attempt.to_le_bytes().to_vec();
    vec![Vec::new(), Vec::new(), moment(Some(first)), ttl, number, codec::encode(&details)]
}

/// Its last moment, its lease and its time to live.
fn draft_parts(draft: &Draft) -> [Vec<u8>; 3] {
    let (not_after, lease) = (bounded(draft.not_after.as_ms()), bounded(draft.lease.as_ms()));
    [text(not_after), text(lease), draft.ttl_ms.to_le_bytes().to_vec()]
}

fn moment(at: Option<StoreTime>) -> Vec<u8> {
    at.map_or_else(Vec::new, |at| at.as_ms().to_le_bytes().to_vec())
}

fn bits(states: StateSet) -> u8 {
    let bit = |kind: StateKind| u8::from(states.contains(kind)) << kind as u8;
    StateKind::ALL.into_iter().map(bit).sum()
}

fn text(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A time that the doubles of Lua hold exactly. Later ones are the end of time there.
fn bounded(ms: i64) -> i64 {
    ms.clamp(-EXACT_MAX, EXACT_MAX)
}

/// The script takes the times from Redis's clock.
const NO_TIME: StoreTime = StoreTime::from_ms(0);
const EXACT_MAX: i64 = 1 << 53;
/// After so many bytes a page ends, however few records it has.
const PAGE_BYTES_MAX: usize = 4 << 20;
