//! The names in the table: keys of items, attributes, the index.
//!
//! A record lies under the digest of its key (the first four bytes of its id), sorted by the rest of the id: the
//! operations of one key are one query. What is running or unknown also has an attribute with its shard, which puts it
//! into the index.

use super::error::DynamoOpenError;
use super::item::{Item, text};
use crate::scope::{IdPrefix, OperationId};
use crate::store::audit::WriterId;

/// Makes the names of one store: all of them begin with its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Result<Self, DynamoOpenError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if (1..=PREFIX_BYTES_MAX).contains(&prefix.len()) && prefix.bytes().all(is_plain) {
            return Ok(Self { prefix: prefix.to_owned() });
        }
        Err(DynamoOpenError::Prefix { prefix: prefix.to_owned() })
    }

    /// The key of a record.
    pub(super) fn record(&self, id: OperationId) -> Item {
        let sort = &hex(id)[KEY_DIGITS..];
        key(self.same_key(id.prefix()), sort.to_owned())
    }

    /// The partition with all records of one key.
    pub(super) fn same_key(&self, prefix: IdPrefix) -> String {
        format!("{}:{:08x}", self.prefix, u32::from_be_bytes(*prefix.as_bytes()))
    }

    /// What the partition of every record begins with. No prefix has a colon in it.
    pub(super) fn all_records(&self) -> String {
        format!("{}:", self.prefix)
    }

    /// The id of the record with this key; `None` if the item is no record of this store.
    pub(super) fn id(&self, key: &Item) -> Option<OperationId> {
        let partition = key.get(PARTITION)?.as_s().ok()?.strip_prefix(&self.all_records())?;
        let digits = format!("{partition}{}", key.get(SORT)?.as_s().ok()?);
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
        Some(OperationId::from_bytes(number.to_be_bytes()))
    }

    /// What the partitions with the parts of a record's answers begin with.
    pub(super) fn parts(&self, id: OperationId) -> String {
        format!("{}{}", self.all_parts(), hex(id))
    }

    /// What the partition of every part begins with.
    pub(super) fn all_parts(&self) -> String {
        format!("{}/part/", self.prefix)
    }

    /// The key of this item, if it is a part of an answer.
    pub(super) fn part(&self, item: &Item) -> Option<Item> {
        let (partition, sort) = (item.get(PARTITION)?.as_s().ok()?, item.get(SORT)?.as_s().ok()?);
        partition.starts_with(&self.all_parts()).then(|| key(partition.clone(), sort.clone()))
    }

    /// The key of a check value.
    pub(super) fn check_value(&self, name: &str) -> Item {
        key(format!("{}/check", self.prefix), name.to_owned())
    }

    /// The partition with the entries of a chain of the audit trail, and its head.
    pub(super) fn chain(&self, writer: WriterId) -> String {
        format!("{}{writer}", self.chain_of_any())
    }

    /// What the partition of every chain begins with.
    pub(super) fn chain_of_any(&self) -> String {
        format!("{}/chain/", self.prefix)
    }

    /// The partition that lists all chains.
    pub(super) fn chains(&self) -> String {
        format!("{}/chains", self.prefix)
    }

    /// The partition of the index that lists the entries of the operations with one key. Notes of no operation share one.
    pub(super) fn entries_of(&self, key: Option<IdPrefix>) -> String {
        key.map_or_else(|| self.all_records(), |key| self.same_key(key))
    }

    /// The partition of the index that lists this record while it is running or unknown.
    pub(super) fn shard_of(&self, id: OperationId) -> String {
        self.shard(shard_of(id))
    }

    pub(super) fn shard(&self, number: u8) -> String {
        format!("{}/{number:02}", self.prefix)
    }
}

/// The number of the shard of this record.
pub(super) fn shard_of(id: OperationId) -> u8 {
    let [.., last] = *id.as_bytes();
    last % SHARDS
}

pub(super) fn key(partition: String, sort: String) -> Item {
    Item::from([(PARTITION.to_owned(), text(partition)), (SORT.to_owned(), text(sort))])
}

pub(super) fn hex(id: OperationId) -> String {
    format!("{:032x}", u128::from_be_bytes(*id.as_bytes()))
}

/// The partition key of the table, and the sort key of the index.
pub(super) const PARTITION: &str = "pk";
/// The sort key of the table.
pub(super) const SORT: &str = "sk";
/// The partition key of the index. Only running and unknown records have it.
pub(super) const SHARD: &str = "shard_key";
/// The index of what is running or unknown.
pub(super) const INDEX: &str = "pending";
/// All indexes: name, partition key, sort key. All are sparse: what is not in use has no entries, and costs nothing.
pub(super) const INDEXES: [(&str, &str, &str); 3] = [
    (INDEX, SHARD, PARTITION),
    (BY_OPERATION.0, BY_OPERATION.1, PLACE),
    (BY_TIME.0, BY_TIME.1, PLACE),
];
/// The sort key of the head of a chain, in the partition of its entries, whose sort keys are numbers.
pub(super) const HEAD: &str = "head";
/// The index of entries by operation, and its partition key.
pub(super) const BY_OPERATION: (&str, &str) = ("trail_by_operation", "trail_key");
/// The index of entries by time, and its partition key.
pub(super) const BY_TIME: (&str, &str) = ("trail_by_time", "trail_shard");
/// The sort key of both: time, writer and number.
pub(super) const PLACE: &str = "trail_place";
/// The attribute of DynamoDB's own time to live, in seconds.
pub(super) const EXPIRES: &str = "expires_s";
/// Partitions of the index: each takes about a thousand writes a second, and an operation makes two.
pub(super) const SHARDS: u8 = 16;
const PREFIX_BYTES_MAX: usize = 64;
/// Hexadecimal digits of the digest of a key.
const KEY_DIGITS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_its_key_and_knows_its_id() {
        let id =
            OperationId::from_bytes(0x0123_4567_89ab_cdef_0000_0000_0000_0c02_u128.to_be_bytes());
        let names = Names::new("oo").unwrap();
        let key = names.record(id);
        assert_eq!(key[PARTITION], text("oo:01234567"));
        assert_eq!(key[SORT], text("89abcdef0000000000000c02"));
        assert_eq!(names.id(&key), Some(id));
        assert_eq!(Names::new("o").unwrap().id(&key), None);
        assert_eq!(names.id(&names.check_value("scope")), None);
    }

    #[test]
    fn a_prefix_that_could_meet_other_names_is_refused() {
        for prefix in ["", "a:b", "a/b", "a b", &"x".repeat(65)] {
            assert!(Names::new(prefix).is_err(), "{prefix:?}");
        }
        assert!(Names::new("shop-1.oo").is_ok());
    }
}
