//! The chain of one writer: numbers, and hashes over all that came before.

use sha2::{Digest, Sha256};

use super::{About, BusinessId, Entry, Head, Link, Note, WriterId};
use crate::clock::StoreTime;

/// The end of a chain, from which the next entry is made. A clone is for a commit that may yet fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Where it begins and ends.
    pub head: Head,
    /// The last batch that was appended: see [`Audit::append`](super::Audit::append).
    pub appended: [u8; 16],
}

impl Chain {
    /// A chain without entries.
    pub fn new(writer: WriterId) -> Self {
        Self { head: Head::new(writer), appended: [0; 16] }
    }

    /// The next entry. It is part of the chain from now on.
    pub fn add(&mut self, at: StoreTime, note: Note) -> Entry {
        let (writer, before) = (self.head.writer, self.head.last);
        let sequence = before.sequence + 1;
        let mut entry = Entry { writer, sequence, hash: [0; 32], at, note };
        entry.hash = entry.hash_after(before.hash);
        self.head.last = Link { sequence, hash: entry.hash };
        entry
    }
}

impl Entry {
    /// The hash that this entry has if it comes after one with the hash `before`.
    pub fn hash_after(&self, before: [u8; 32]) -> [u8; 32] {
        let mut hash = Hashing(Sha256::new_with_prefix(DOMAIN).chain_update(before));
        hash.bytes(&self.writer.to_bytes());
        hash.number(self.sequence);
        hash.number(self.at.as_ms().cast_unsigned());
        self.note.hash(&mut hash);
        hash.0.finalize().into()
    }
}

impl Note {
    fn hash(&self, hash: &mut Hashing) {
        let Self { kind, id, status, count, about } = self;
        hash.bytes(kind.name().as_bytes());
        hash.option(id.as_ref().map(|id| id.as_bytes().as_slice()));
        hash.option(status.map(u16::to_be_bytes).as_ref().map(<[u8; 2]>::as_slice));
        hash.option(count.map(u64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
        let About { key, route, principal, attempt, by, ids } = &**about;
        hash.option(key.as_ref().map(|key| key.as_bytes().as_slice()));
        hash.bytes(route.as_bytes());
        hash.option(principal.as_ref().map(|principal| principal.as_bytes().as_slice()));
        hash.option(attempt.map(u32::to_be_bytes).as_ref().map(<[u8; 4]>::as_slice));
        hash.option(by.as_ref().map(|by| by.who().as_bytes()));
        hash.option(by.as_ref().map(|by| by.why().as_bytes()));
        hash.number(ids.len() as u64);
        for BusinessId { pointer, value } in ids {
            hash.bytes(pointer.as_bytes());
            hash.bytes(value.as_bytes());
        }
    }
}

/// Hashes values so that no two different lists of them are the same bytes: each has its length before it.
struct Hashing(Sha256);

impl Hashing {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn option(&mut self, bytes: Option<&[u8]>) {
        self.0.update([u8::from(bytes.is_some())]);
        self.bytes(bytes.unwrap_or_default());
    }
}

const DOMAIN: &[u8] = b"onlyonce audit 1\0";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::{By, EventKind};
    use crate::scope::{KeyDigest, OperationId, Principal};

    fn note() -> Note {
        let about = About {
            key: Some(KeyDigest::of_key(None, "k")),
            route: "charges".into(),
            principal: Some(Principal::of("user", b"ann")),
            attempt: Some(1),
            by: By::new("ann", "seen").ok(),
            ids: vec![BusinessId { pointer: "/id".to_owned(), value: "ch_1".to_owned() }],
        };
        let id = Some(OperationId::from_bytes([1; 16]));
        Note {
            kind: EventKind::Executed,
            id,
            status: Some(201),
            count: None,
            about: Arc::new(about),
        }
    }

    fn changed(change: impl FnOnce(&mut About)) -> Note {
        let mut about = About::clone(&note().about);
        change(&mut about);
        Note { about: Arc::new(about), ..note() }
    }

    #[test]
    fn every_value_of_an_entry_is_part_of_its_hash() {
        let writer = WriterId::new([7; 16], 0);
        let at = StoreTime::from_ms(5);
        let hash = |note: Note| Chain::new(writer).add(at, note).hash;
        let id = |value: &str| BusinessId { pointer: "/id".to_owned(), value: value.to_owned() };
        let others = [
            Note { kind: EventKind::Settled, ..note() },
            Note { id: None, ..note() },
            Note { status: None, ..note() },
            Note { count: Some(0), ..note() },
            changed(|about| about.key = None),
            changed(|about| about.route = "charge".into()),
            changed(|about| about.principal = None),
            changed(|about| about.attempt = Some(2)),
            changed(|about| about.by = By::new("ann", "see").ok()),
            changed(|about| about.by = By::new("annseen", "seen").ok()),
            changed(|about| about.ids = vec![id("ch_2")]),
            changed(|about| about.ids = vec![id("ch_1"), id("")]),
        ];
        for other in others {
            assert_ne!(hash(other.clone()), hash(note()), "{other:?}");
        }
        let one = Chain::new(writer).add(at, note());
        assert_ne!(Chain::new(writer).add(StoreTime::from_ms(6), note()).hash, one.hash);
        assert_ne!(Chain::new(WriterId::new([7; 16], 1)).add(at, note()).hash, one.hash);
        assert_ne!(one.hash_after([1; 32]), one.hash);
    }
}
