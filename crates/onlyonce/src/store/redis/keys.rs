//! The names of what the store keeps in Redis.
//!
//! Everything about one record has the same hash tag, its slot: Redis Cluster keeps it on one node.

use super::error::OpenError;
use crate::scope::OperationId;

/// What every name begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Result<Self, OpenError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        if (1..=PREFIX_BYTES_MAX).contains(&prefix.len()) && prefix.bytes().all(is_plain) {
            return Ok(Self { prefix: prefix.to_owned() });
        }
        Err(OpenError::Prefix { prefix: prefix.to_owned() })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What the scripts about one record are given, in their order.
    pub(super) fn of_record(&self, id: OperationId) -> Vec<Vec<u8>> {
        let slot = slot(id);
        let record = self.name(slot, &hex(id));
        let mut keys = vec![record];
        keys.extend(
            ["clock", "running", "unknown", "ended", NONE].map(|name| self.name(slot, name)),
        );
        keys
    }

    /// What the scripts about a range of slots are given: a key that is never there.
    pub(super) fn of_slots(&self, first: u16) -> Vec<Vec<u8>> {
        vec![self.name(first, NONE)]
    }

    /// What the script about check values is given.
    pub(super) fn of_check_values(&self) -> Vec<Vec<u8>> {
        ["check", NONE].map(|name| self.name(0, name)).to_vec()
    }

    /// A completed entry of the filter.
    pub(crate) fn entry(&self, id: OperationId) -> Vec<u8> {
        self.name(slot(id), &format!("f:{}", hex(id)))
    }

    /// Where writes are told.
    pub(super) fn channel(&self) -> String {
        format!("{}:changed", self.prefix)
    }

    fn name(&self, slot: u16, name: &str) -> Vec<u8> {
        format!("{}:{{{slot}}}:{name}", self.prefix).into_bytes()
    }
}

/// The id modulo [`SLOTS`].
pub(super) fn slot(id: OperationId) -> u16 {
    let bytes = id.as_bytes();
    u16::from_be_bytes([bytes[14], bytes[15]]) % SLOTS
}

fn hex(id: OperationId) -> String {
    format!("{:032x}", u128::from_be_bytes(*id.as_bytes()))
}

/// Into how many parts the ids are divided.
pub(super) const SLOTS: u16 = 1024;
const PREFIX_BYTES_MAX: usize = 64;
const NONE: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_a_record_have_the_tag_of_its_slot() {
        let names = Names::new("oo").unwrap();
        let id =
            OperationId::from_bytes(0x0123_4567_89ab_cdef_0000_0000_0000_0c02_u128.to_be_bytes());
        let keys = names.of_record(id);
        assert_eq!(keys[0], b"oo:{2}:0123456789abcdef0000000000000c02");
        assert_eq!(keys[2], b"oo:{2}:running");
        assert!(keys.iter().all(|key| key.starts_with(b"oo:{2}:")));
    }

    #[test]
    fn a_prefix_that_would_move_the_tag_is_refused() {
        for prefix in ["", "a{b}", "a b", &"x".repeat(65)] {
            assert!(Names::new(prefix).is_err(), "{prefix:?}");
        }
        assert!(Names::new("shop-1:oo").is_ok());
    }
}
