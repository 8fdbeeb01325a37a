//! The calls of the scripts: the names of the keys, all under one prefix, and the arguments, in the order that the script in
//! `lua/` names.

use std::time::Duration;

use super::error::RedisOpenError;
use super::record_value;
use super::scripts::{Script, ScriptCall};
use crate::clock::StoreTime;
use crate::hex;
use crate::record::codec;
use crate::record::{Record, Response, Revision, SettledBy, StateKind, StateSet, Token};
use crate::scope::{IdPrefix, OperationId};
use crate::store::{Cursor, Draft, Lease, Scan, StoreIdentity, cas};
use crate::velocity::Allowance;

/// Makes the names and the calls of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(super) prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Result<Self, RedisOpenError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        if (1..=PREFIX_BYTES_MAX).contains(&prefix.len()) && prefix.bytes().all(is_plain) {
            return Ok(Self { prefix: prefix.to_owned() });
        }
        Err(RedisOpenError::Prefix(prefix.to_owned()))
    }

    /// A completed entry of the filter in front of this authority. No prefix has a `/`, so that it is no record of another store.
    pub(crate) fn filter_entry(&self, authority: StoreIdentity, id: OperationId) -> String {
        self.named(&format!("filter/{}/{id}", hex::encode(authority.as_bytes())))
    }

    /// What a limit was used for. No prefix has a `/`, so that it is no record of another store.
    fn limited(&self, authority: Option<StoreIdentity>, subject: &[u8; 16]) -> String {
        let of_authority = |authority: StoreIdentity| hex::encode(authority.as_bytes()) + "/";
        let authority = authority.map(of_authority).unwrap_or_default();
        self.named(&format!("limit/{authority}{}", hex::encode(subject)))
    }

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
            text(&self.prefix),
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

    /// A use of each allowance; of those who share `authority`, where Redis is the filter in front of one.
    pub(crate) fn admit(
        &self,
        authority: Option<StoreIdentity>,
        allowances: &[Allowance],
    ) -> ScriptCall {
        let keys = allowances.iter().map(|allowance| self.limited(authority, allowance.subject()));
        let micros = |duration: Duration| text(duration.as_micros());
        let args = allowances.iter().flat_map(|a| [micros(a.every()), micros(a.burst())]);
        ScriptCall { script: Script::Admit, keys: keys.collect(), args: args.collect() }
    }

    /// Keys that every database of the builds before the first release has: they divided it into slots.
    pub(super) fn of_older_format(&self) -> [String; 3] {
        ["beat", "clock", "check"].map(|name| self.named(&format!("{{0}}:{name}")))
    }

    /// One of the names below.
    pub(super) fn named(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
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

/// The sorted set of the running records, by the end of their lease.
const RUNNING: &str = "running";
/// The sorted set of the unknown records, by the moment since when they are unknown.
const UNKNOWN: &str = "unknown";
/// The hash of the check values.
const CHECK_VALUES: &str = "check";
/// The channel on which the ids of changed records are published.
pub(super) const CHANNEL: &str = "changed";
/// A key that never exists.
const NONE: &str = "none";
/// The script takes the times from Redis's clock.
const NO_TIME: StoreTime = StoreTime::from_ms(0);
/// After so many bytes a page ends, however few records it has.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// One more than the bits of a place: the place after the last one fits too.
const PLACE_BITS: u32 = 53;
const PREFIX_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_the_hex_digits_of_its_id() {
        let id =
            OperationId::from_bytes(0x0123_4567_89ab_cdef_0000_0000_0000_0c02_u128.to_be_bytes());
        let keys = Keys::new("oo").unwrap();
        assert_eq!(keys.load(id).keys[1], "oo:0123456789abcdef0000000000000c02");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("0c02".parse::<OperationId>().is_err());
    }

    #[test]
    fn a_prefix_that_could_meet_other_keys_is_refused() {
        for prefix in ["", "a{b}", "a/b", "a b", "a*", &"x".repeat(65)] {
            assert!(Keys::new(prefix).is_err(), "{prefix:?}");
        }
        assert!(Keys::new("shop-1:oo").is_ok());
    }

    #[test]
    fn a_cursor_says_where_it_was_made() {
        for (number, place) in [(0, 0), (1_780_000_000_000, 7), (u64::MAX, 1 << 52)] {
            assert_eq!(split_cursor(to_cursor(number, place)), (number, place));
        }
    }
}
