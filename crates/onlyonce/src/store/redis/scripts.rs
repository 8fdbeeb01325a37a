//! The scripts: one for each kind of write, so that its guard and the write are one step of the server. And the keys and
//! arguments of each, in the order that the script in `lua/` names.

use ::redis::Cmd;

use super::keys::{CHANNEL, CHECK_VALUES, Keys, NONE, RUNNING, UNKNOWN};
use super::record_value;
use crate::clock::StoreTime;
use crate::hex;
use crate::record::codec;
use crate::record::{Record, Response, Revision, SettledBy, StateKind, StateSet, Token};
use crate::scope::{IdPrefix, OperationId};
use crate::store::{Cursor, Draft, Lease, Scan, cas};

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
    Complete: "lua/common.lua" "lua/record.lua" "lua/complete.lua";
    Put: "lua/common.lua" "lua/record.lua" "lua/put.lua";
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
        let record = record_value::encode(draft.id, &cas::first_attempt(draft, NO_TIME));
        let own = [record, text(draft.not_after.as_ms()), text(draft.lease.as_ms())];
        self.about_record(Script::Claim, draft.id, own)
    }

    pub(super) fn renew(&self, id: OperationId, token: Token, lease: Lease) -> ScriptCall {
        let own = [token.as_bytes().to_vec(), text(lease.as_ms())];
        self.about_record(Script::Renew, id, own)
    }

    /// An owner's completion.
    pub(super) fn complete(
        &self,
        id: OperationId,
        (token, states): (Token, StateSet),
        (settled_by, response): (SettledBy, &Response),
    ) -> ScriptCall {
        let outcome = codec::encode_outcome(settled_by, response);
        let crc = crc32c::crc32c(&outcome).to_le_bytes().to_vec();
        let own = [token.as_bytes().to_vec(), text(states.open_bits()), outcome, crc];
        self.about_record(Script::Complete, id, own)
    }

    /// Replaces the record that was read by `to`, or deletes it.
    pub(super) fn put(
        &self,
        id: OperationId,
        read: Revision,
        to: Option<&Record>,
        not_after: StoreTime,
    ) -> ScriptCall {
        let read = [&read.token.as_bytes()[..], &read.count.to_le_bytes()].concat();
        let to = to.map_or_else(Vec::new, |record| record_value::encode(id, record));
        self.about_record(Script::Put, id, [read, text(not_after.as_ms()), to])
    }

    fn about_record(
        &self,
        script: Script,
        id: OperationId,
        own: impl IntoIterator<Item = Vec<u8>>,
    ) -> ScriptCall {
        let keys = [NONE, &id.to_string(), RUNNING, UNKNOWN].map(|name| self.named(name));
        let mut args = vec![text(id), text(self.named(CHANNEL))];
        args.extend(own);
        ScriptCall { script, keys: keys.into(), args }
    }

    /// How many keys the database has.
    pub(super) fn size(&self) -> ScriptCall {
        ScriptCall { script: Script::Size, keys: vec![self.named(NONE)], args: Vec::new() }
    }

    /// Of a scan through all keys, ids must begin with `prefix`.
    pub(super) fn scan(&self, scan: &Scan, prefix: Option<IdPrefix>) -> ScriptCall {
        let mut keys = vec![self.named(NONE)];
        for (kind, set) in [(StateKind::Running, RUNNING), (StateKind::Unknown, UNKNOWN)] {
            if scan.states == StateSet::of(&[kind]) {
                keys.push(self.named(set));
            }
        }
        let (number, place) = scan.after.map_or((0, 0), split_cursor);
        let args = vec![
            text(self.prefix()),
            text(scan.states.bits()),
            text(scan.limit),
            text(PAGE_BYTES_MAX),
            text(number),
            text(place),
            prefix.map_or_else(Vec::new, |prefix| text(hex::encode(prefix.as_bytes()))),
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

/// A cursor is a score in the sorted set, or the cursor of Redis's own `SCAN`; and the first place there which is not listed
/// yet, 52 bits of an id.
pub(super) fn to_cursor(number: u64, place: u64) -> Cursor {
    Cursor(u128::from(number) << PLACE_BITS | u128::from(place))
}

fn split_cursor(Cursor(cursor): Cursor) -> (u64, u64) {
    ((cursor >> PLACE_BITS) as u64, (cursor & ((1 << PLACE_BITS) - 1)) as u64)
}

fn text(shown: impl ToString) -> Vec<u8> {
    shown.to_string().into_bytes()
}

/// The script takes the times from Redis's clock.
const NO_TIME: StoreTime = StoreTime::from_ms(0);
/// After so many bytes a page ends, however few records it has.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// One more than the bits of a place: the place after the last one fits too.
const PLACE_BITS: u32 = 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_where_it_was_made() {
        for (number, place) in [(0, 0), (1_780_000_000_000, 7), (u64::MAX, 1 << 52)] {
            assert_eq!(split_cursor(to_cursor(number, place)), (number, place));
        }
    }
}
