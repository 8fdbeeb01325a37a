//! The names of the keys in Redis, all under one prefix.

use std::time::Duration;

use super::error::RedisOpenError;
use super::scripts::{Script, ScriptCall};
use crate::hex;
use crate::scope::OperationId;
use crate::velocity::Allowance;

/// Makes the names of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Result<Self, RedisOpenError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        if (1..=PREFIX_BYTES_MAX).contains(&prefix.len()) && prefix.bytes().all(is_plain) {
            return Ok(Self { prefix: prefix.to_owned() });
        }
        Err(RedisOpenError::Prefix(prefix.to_owned()))
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A completed entry of the filter. No prefix has a `/`, so that it is no record of another store.
    pub(crate) fn filter_entry(&self, id: OperationId) -> String {
        self.named(&format!("filter/{id}"))
    }

    /// What a limit was used for. No prefix has a `/`, so that it is no record of another store.
    fn limited(&self, subject: &[u8; 16]) -> String {
        self.named(&format!("limit/{}", hex::encode(subject)))
    }

    /// A use of each allowance.
    pub(crate) fn admit(&self, allowances: &[Allowance]) -> ScriptCall {
        let keys = allowances.iter().map(|allowance| self.limited(allowance.subject()));
        let micros = |duration: Duration| duration.as_micros().to_string().into_bytes();
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

/// The sorted set of the running records, by the end of their lease.
pub(super) const RUNNING: &str = "running";
/// The sorted set of the unknown records, by the moment since when they are unknown.
pub(super) const UNKNOWN: &str = "unknown";
/// The hash of the check values.
pub(super) const CHECK_VALUES: &str = "check";
/// The channel on which the ids of changed records are published.
pub(super) const CHANNEL: &str = "changed";
/// A key that never exists.
pub(super) const NONE: &str = "none";
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
}
