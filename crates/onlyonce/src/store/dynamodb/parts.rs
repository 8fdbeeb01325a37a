//! Answers that are too large for one item: kept in items of their own.
//!
//! 1. All parts are written before the completion that names them. A reader finds them by that name, so that it never
//!    sees half an answer.
//! 2. The name is the token that the record has with them, and a digest of the whole answer: a repeated write makes the same
//!    parts, those of another attempt are others, and what was put together is compared with the digest.
//! 3. Parts that no record names any more are deleted, or deleted by DynamoDB's own time to live.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::item::{Item, blob, number};
use super::names::{EXPIRES, key};
use crate::hex;
use crate::record::Token;

/// The name of the parts of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Token and digest, in hexadecimal digits.
    name: String,
    pub(super) count: usize,
}

impl Parts {
    /// The parts of `outcome` in a record with this token.
    pub(super) fn of(token: Token, outcome: &[u8]) -> Self {
        let name = format!("{}{}", hex::encode(token.as_bytes()), digest(outcome));
        Self { name, count: outcome.len().div_ceil(PART_BYTES) }
    }

    /// The items of these parts of `outcome`, under `partition`, kept until `expires_s`.
    pub(super) fn items(&self, partition: &str, outcome: &[u8], expires_s: i64) -> Vec<Item> {
        let item = |(at, part): (usize, &[u8])| {
            let mut item = self.key(partition, at);
            item.insert("part".to_owned(), blob(part.to_vec()));
            item.insert(EXPIRES.to_owned(), number(expires_s));
            item
        };
        outcome.chunks(PART_BYTES).enumerate().map(item).collect()
    }

    /// The keys of all parts, in their order.
    pub(super) fn keys(&self, partition: &str) -> Vec<Item> {
        (0..self.count).map(|at| self.key(partition, at)).collect()
    }

    fn key(&self, partition: &str, at: usize) -> Item {
        key(nth(partition, at), self.name.clone())
    }

    /// Whether `outcome` is what these parts are named after.
    pub(super) fn is_whole(&self, outcome: &[u8]) -> bool {
        self.name.ends_with(&digest(outcome))
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.count)
    }
}

impl FromStr for Parts {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, count) = text.split_once('/').ok_or(())?;
        let count = count.parse().ok().filter(|count| (1..=PARTS_MAX).contains(count)).ok_or(())?;
        Ok(Self { name: name.to_owned(), count })
    }
}

/// The partition of the part with this number. Each has one of its own, because a partition takes a thousand write units a
/// second, and a part is a third of that.
pub(super) fn nth(partition: &str, at: usize) -> String {
    format!("{partition}/{at:02}")
}

fn digest(outcome: &[u8]) -> String {
    hex::encode(&Sha256::digest(outcome)[..16])
}

/// What fits into one item beside the rest of it: DynamoDB takes 400 KB for an item, names of attributes included.
pub(super) const PART_BYTES: usize = 380_000;
/// As many parts as the largest body has, and one for the head of its response.
pub(super) const PARTS_MAX: usize = BODY_BYTES_MAX.div_ceil(PART_BYTES) + 1;
/// The largest body that is kept in parts: a settle writes them all, and a write of a kilobyte is a write unit.
pub(super) const BODY_BYTES_MAX: usize = 16 << 20;
/// The largest outcome that an item takes: the record beside it may have a path of 64 KiB.
pub(super) const INLINE_BYTES_MAX: usize = 335_000;
/// The largest body that is kept where there are no parts: an item has its response's head and the record too.
pub(super) const INLINE_BODY_BYTES_MAX: usize = 300_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_put_together_are_the_answer_they_are_named_after() {
        let outcome: Vec<u8> = (0..PART_BYTES + 7).map(|at| at as u8).collect();
        let parts = Parts::of(Token::from_bytes([7; 16]), &outcome);
        assert_eq!(parts.to_string().parse(), Ok(parts.clone()));
        let items = parts.items("p", &outcome, 1);
        assert_eq!((parts.count, items.len(), parts.keys("p").len()), (2, 2, 2));
        let whole: Vec<u8> =
            items.iter().flat_map(|item| item["part"].as_b().unwrap().as_ref().to_vec()).collect();
        assert!(parts.is_whole(&whole));
        assert!(!parts.is_whole(&whole[1..]));
        for wrong in ["", "ab", "ab/0", "ab/99999"] {
            assert_eq!(wrong.parse::<Parts>(), Err(()), "{wrong}");
        }
    }
}
