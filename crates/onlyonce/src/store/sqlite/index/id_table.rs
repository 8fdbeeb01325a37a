//! The hash table from id to slot: 24 bytes an entry.
//!
//! The shard of an id is chosen by its prefix alone, so that the ids of one key are found by reading one shard.
//!
//! A `HashMap` doubles, so that a record costs up to 57 bytes, and one that holds millions of records stops the writer
//! while it does. This table has 1,024 shards with open addressing that grow by a quarter, each at its own time: a
//! record costs at most 40 bytes, and growing one shard is quick. The hash is keyed, because a client has a hand in ids.

use std::hash::{BuildHasher, RandomState};

use crate::scope::{IdPrefix, OperationId};
use crate::store::sqlite::layout::place::Slot;

pub(crate) struct IdTable {
    shards: Vec<Shard>,
    hasher: RandomState,
    count: usize,
}

impl IdTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            count: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, id: &OperationId) -> Option<Slot> {
        let shard = &self.shards[self.shard_of(id.prefix())];
        let at = shard.find(self.hash(id), id)?;
        shard.entries[at].slot()
    }

    /// The ids that begin with `prefix`.
    pub(crate) fn with_prefix(&self, prefix: IdPrefix) -> impl Iterator<Item = OperationId> {
        let entries = self.shards[self.shard_of(prefix)].entries.iter();
        let ids =
            entries.filter(|entry| !entry.is_free()).map(|entry| OperationId::from_bytes(entry.id));
        ids.filter(move |id| id.prefix() == prefix)
    }

    /// Returns the slot before.
    pub(crate) fn insert(&mut self, id: OperationId, slot: Slot) -> Option<Slot> {
        let (hash, shard) = (self.hash(&id), self.shard_of(id.prefix()));
        let shard = &mut self.shards[shard];
        if let Some(at) = shard.find(hash, &id) {
            return shard.entries[at].replace(slot);
        }
        shard.make_room(&self.hasher);
        shard.add(hash, Entry::new(id, slot));
        self.count += 1;
        None
    }

    pub(crate) fn remove(&mut self, id: &OperationId) -> Option<Slot> {
        let (hash, shard) = (self.hash(id), self.shard_of(id.prefix()));
        let shard = &mut self.shards[shard];
        let at = shard.find(hash, id)?;
        let slot = shard.entries[at].slot();
        shard.remove_at(at, &self.hasher);
        self.count -= 1;
        slot
    }

    /// The memory that the table takes.
    pub(crate) fn bytes(&self) -> usize {
        let entries: usize = self.shards.iter().map(|shard| shard.entries.len()).sum();
        entries * size_of::<Entry>()
    }

    fn hash(&self, id: &OperationId) -> u64 {
        self.hasher.hash_one(id.as_bytes())
    }

    fn shard_of(&self, prefix: IdPrefix) -> usize {
        self.hasher.hash_one(prefix.as_bytes()) as usize % SHARDS
    }
}

#[derive(Default)]
struct Shard {
    entries: Vec<Entry>,
    count: usize,
}

impl Shard {
    fn find(&self, hash: u64, id: &OperationId) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let entry = &self.entries[at];
            if entry.is_free() {
                return None;
            }
            if entry.id == *id.as_bytes() {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// Makes room for one more entry. At least a fifth of the entries stays free, so that searches are short.
    fn make_room(&mut self, hasher: &RandomState) {
        if (self.count + 1) * 5 <= self.entries.len() * 4 {
            return;
        }
        let length = (self.entries.len() + self.entries.len() / 4).max(SHARD_ENTRIES_MIN);
        let old = std::mem::replace(&mut self.entries, vec![Entry::FREE; length]);
        self.count = 0;
        for entry in old.into_iter().filter(|entry| !entry.is_free()) {
            self.add(hasher.hash_one(entry.id), entry);
        }
    }

    fn add(&mut self, hash: u64, entry: Entry) {
        let mut at = self.home(hash);
        while !self.entries[at].is_free() {
            at = self.after(at);
        }
        self.entries[at] = entry;
        self.count += 1;
    }

    /// Removes an entry and moves later ones into the gap, so that a search for them does not end there.
    fn remove_at(&mut self, mut gap: usize, hasher: &RandomState) {
        let mut at = self.after(gap);
        while !self.entries[at].is_free() {
            let home = self.home(hasher.hash_one(self.entries[at].id));
            if self.distance(home, at) >= self.distance(gap, at) {
                self.entries[gap] = self.entries[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.entries[gap] = Entry::FREE;
        self.count -= 1;
    }

    /// Where a search begins: the low half of the hash, scaled to the length.
    fn home(&self, hash: u64) -> usize {
        let low = hash & u64::from(u32::MAX);
        ((low * self.entries.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.entries.len() - from }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    id: [u8; 16],
    slot: u64,
}

impl Entry {
    const FREE: Self = Self { id: [0; 16], slot: 0 };

    fn new(id: OperationId, slot: Slot) -> Self {
        Self { id: *id.as_bytes(), slot: slot.to_bits() }
    }

    fn is_free(&self) -> bool {
        self.slot == 0
    }

    fn slot(&self) -> Option<Slot> {
        Slot::from_bits(self.slot)
    }

    fn replace(&mut self, slot: Slot) -> Option<Slot> {
        let old = self.slot();
        self.slot = slot.to_bits();
        old
    }
}

const SHARDS: usize = 1024;
const SHARD_ENTRIES_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::record::StateKind;
    use crate::store::sqlite::layout::place::Place;

    fn id(n: u64) -> OperationId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        OperationId::from_bytes(bytes)
    }

    fn slot(row: i64) -> Slot {
        let place = Place { class: 27, row };
        Slot { kind: StateKind::Completed, place }
    }

    #[test]
    fn it_agrees_with_a_map_through_inserts_and_removals() {
        let (mut index, mut map) = (IdTable::new(), HashMap::new());
        let mut seed = 1_u64;
        for step in 1..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = id((seed >> 33) % 30_000);
            if seed >> 62 == 0 {
                assert_eq!(index.remove(&id), map.remove(&id));
            } else {
                assert_eq!(index.insert(id, slot(step)), map.insert(id, slot(step)));
            }
        }
        assert_eq!(index.len(), map.len());
        for n in 0..30_000 {
            assert_eq!(index.get(&id(n)), map.get(&id(n)).copied());
        }
    }

    #[test]
    fn the_ids_of_a_prefix_are_found_and_no_others() {
        let mut index = IdTable::new();
        for n in 1..50_000 {
            index.insert(id((n << 32) | (n % 100)), slot(n as i64));
        }
        for prefix in [id(7).prefix(), id(99).prefix(), id(100).prefix()] {
            let found: Vec<_> = index.with_prefix(prefix).collect();
            assert!(found.iter().all(|id| id.prefix() == prefix));
            assert_eq!(found.len(), if prefix == id(100).prefix() { 0 } else { 500 });
        }
    }

    #[test]
    fn a_record_costs_at_most_forty_bytes_at_every_size() {
        let mut index = IdTable::new();
        for n in 1..2_000_000 {
            index.insert(id(n), slot(n as i64));
            if n >= 100_000 && n % 10_000 == 0 {
                assert!(index.bytes() <= index.len() * 40, "{} at {n}", index.bytes());
            }
        }
    }
}
