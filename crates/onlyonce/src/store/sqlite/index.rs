//! What memory knows of the committed records: where each is, and all of those that are not completed.

pub(super) mod id_hash;
mod id_table;

use std::collections::BTreeMap;
use std::ops::Bound;

use self::id_table::Index;
use super::layout::place::{CLASS_MAX, Place, Slot};
use super::layout::rows::Routes;
use crate::record::{Record, StateKind, StateSet};
use crate::scope::OperationId;

pub(super) struct View {
    pub(super) index: Index,
    /// Running, unknown and released records, by their state and then by their place.
    live: [BTreeMap<Place, Box<Live>>; 3],
    pub(super) routes: Routes,
    /// How many of those there are in each TTL class that no sweep may delete.
    held_rows: [i64; CLASS_MAX as usize + 1],
}

pub(super) struct Live {
    pub(super) id: OperationId,
    pub(super) record: Record,
}

/// What memory says of an id. No place: absent. A place and no record: completed or unreadable, to be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) place: Option<Place>,
    pub(super) record: Option<Record>,
}

impl View {
    pub(super) fn new(routes: Routes) -> Self {
        Self {
            index: Index::new(),
            live: Default::default(),
            routes,
            held_rows: [0; CLASS_MAX as usize + 1],
        }
    }

    pub(super) fn look(&self, id: &OperationId) -> Look {
        let slot = self.index.get(id);
        let live = slot.and_then(|slot| self.live_at(slot));
        Look { place: slot.map(|slot| slot.place), record: live.map(|live| live.record.clone()) }
    }

    /// Whether the record of `id` must be read.
    pub(super) fn is_on_disk(&self, id: &OperationId) -> bool {
        let slot = self.index.get(id);
        slot.is_some_and(|slot| slot.kind == StateKind::Completed)
    }

    /// The record of `id` is this one now, and lies there.
    pub(super) fn put(&mut self, id: OperationId, place: Place, record: Record) {
        let slot = Slot { kind: record.state.kind(), place };
        let old = self.index.insert(id, slot);
        self.drop_live(old);
        if slot.kind != StateKind::Completed {
            self.live[slot.kind as usize].insert(place, Box::new(Live { id, record }));
            self.held_rows[usize::from(place.class)] += is_held(slot.kind);
        }
    }

    /// The record of `id` lies there, and must be read.
    pub(super) fn put_on_disk(&mut self, id: OperationId, place: Place) -> Option<Slot> {
        let old = self.index.insert(id, Slot { kind: StateKind::Completed, place });
        self.drop_live(old);
        old
    }

    pub(super) fn remove(&mut self, id: &OperationId) {
        let old = self.index.remove(id);
        self.drop_live(old);
    }

    /// Up to `limit` live records in `states` that lie after `after` in the order of states and places.
    pub(super) fn page(
        &self,
        states: StateSet,
        after: Option<Slot>,
        limit: usize,
    ) -> Vec<(Slot, &Live)> {
        let kinds = StateKind::ALL[..3].iter().filter(|kind| states.contains(**kind));
        let kinds = kinds.filter(|kind| after.is_none_or(|after| **kind as u8 >= after.kind as u8));
        let records = kinds.flat_map(|kind| {
            let after = after.filter(|after| after.kind == *kind);
            let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.place));
            let range = self.live[*kind as usize].range((start, Bound::Unbounded));
            range.map(|(place, live)| (Slot { kind: *kind, place: *place }, live.as_ref()))
        });
        records.take(limit).collect()
    }

    /// The running records: what only memory knows of them is their lease.
    pub(super) fn running(&self) -> impl Iterator<Item = &Live> {
        self.live[StateKind::Running as usize].values().map(AsRef::as_ref)
    }

    /// How many rows of a class are running or unknown.
    pub(super) fn held_rows(&self, class: u8) -> i64 {
        self.held_rows[usize::from(class)]
    }

    fn live_at(&self, slot: Slot) -> Option<&Live> {
        let live = self.live.get(slot.kind as usize)?;
        live.get(&slot.place).map(AsRef::as_ref)
    }

    fn drop_live(&mut self, old: Option<Slot>) {
        if let Some(slot) = old
            && let Some(live) = self.live.get_mut(slot.kind as usize)
        {
            let removed = live.remove(&slot.place);
            let held = removed.map_or(0, |_| is_held(slot.kind));
            self.held_rows[usize::from(slot.place.class)] -= held;
        }
    }
}

/// 1 for what no sweep may delete.
fn is_held(kind: StateKind) -> i64 {
    i64::from(matches!(kind, StateKind::Running | StateKind::Unknown))
}
