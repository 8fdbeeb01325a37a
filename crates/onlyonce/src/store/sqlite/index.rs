//! The in-memory index of the committed records: the place of every record, and the whole record of those that are not
//! completed. It changes only after a commit.

pub(super) mod build;
mod id_table;

use std::collections::BTreeMap;
use std::ops::Bound;

use self::id_table::IdTable;
use super::layout::place::{CLASS_MAX, Place, Slot};
use super::layout::routes::Routes;
use crate::record::{Record, StateKind, StateSet};
use crate::scope::OperationId;
use crate::store::Census;

pub(super) struct Index {
    pub(super) ids: IdTable,
    /// The live records, those that are not completed: running, unknown and released, each ordered by place.
    live: [BTreeMap<Place, Box<Live>>; 3],
    pub(super) routes: Routes,
    /// How many records of each TTL class are pinned: running or unknown, so that no sweep may delete them.
    pinned_rows: [i64; CLASS_MAX as usize + 1],
}

pub(super) struct Live {
    pub(super) id: OperationId,
    pub(super) record: Record,
}

/// What the index says of an id. Without a place the id is absent. With a place and no record, the record is completed or
/// damaged, and its row must be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookup {
    pub(super) place: Option<Place>,
    pub(super) record: Option<Record>,
}

impl Index {
    pub(super) fn new(routes: Routes) -> Self {
        Self {
            ids: IdTable::new(),
            live: Default::default(),
            routes,
            pinned_rows: [0; CLASS_MAX as usize + 1],
        }
    }

    pub(super) fn lookup(&self, id: &OperationId) -> Lookup {
        let slot = self.ids.get(id);
        let live = slot.and_then(|slot| self.live_at(slot));
        Lookup { place: slot.map(|slot| slot.place), record: live.map(|live| live.record.clone()) }
    }

    /// Whether there is a record of `id` and its row must be read.
    pub(super) fn must_be_read(&self, id: &OperationId) -> bool {
        let slot = self.ids.get(id);
        slot.is_some_and(|slot| slot.kind == StateKind::Completed)
    }

    /// Sets the record of `id` and its place.
    pub(super) fn put(&mut self, id: OperationId, place: Place, record: Record) {
        let slot = Slot { kind: record.state.kind(), place };
        let old = self.ids.insert(id, slot);
        self.drop_live(old);
        if slot.kind != StateKind::Completed {
            self.live[slot.kind as usize].insert(place, Box::new(Live { id, record }));
            self.pinned_rows[usize::from(place.class)] += is_pinned(slot.kind);
        }
    }

    /// Sets the place of a record that must be read from its row. Returns what was there before.
    pub(super) fn put_unread(&mut self, id: OperationId, place: Place) -> Option<Slot> {
        let old = self.ids.insert(id, Slot { kind: StateKind::Completed, place });
        self.drop_live(old);
        old
    }

    pub(super) fn remove(&mut self, id: &OperationId) {
        let old = self.ids.remove(id);
        self.drop_live(old);
    }

    /// How many records there are.
    pub(super) fn census(&self) -> Census {
        let mut census = Census::default();
        self.live.iter().flat_map(BTreeMap::values).for_each(|live| census.count(&live.record));
        Census { records: self.ids.len() as u64, ..census }
    }

    /// Up to `limit` live records in `states`, ordered by state and place, from behind `after` on.
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

    /// The running records. Their renewed leases are only here.
    pub(super) fn running(&self) -> impl Iterator<Item = &Live> {
        self.live[StateKind::Running as usize].values().map(AsRef::as_ref)
    }

    /// How many records of a class are running or unknown.
    pub(super) fn pinned_rows(&self, class: u8) -> i64 {
        self.pinned_rows[usize::from(class)]
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
            let pinned = removed.map_or(0, |_| is_pinned(slot.kind));
            self.pinned_rows[usize::from(slot.place.class)] -= pinned;
        }
    }
}

/// 1 for a state that no sweep may delete.
fn is_pinned(kind: StateKind) -> i64 {
    i64::from(matches!(kind, StateKind::Running | StateKind::Unknown))
}
