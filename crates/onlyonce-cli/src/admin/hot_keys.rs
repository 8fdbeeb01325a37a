//! The keys that come again and again. Bounded: where there are too many keys, all counts decay, so that those that
//! come most often stay.

use std::collections::HashMap;
use std::sync::Arc;

use onlyonce::scope::OperationId;
use onlyonce::{EventKind, OperationEvent};

/// Repeats in the last five to ten minutes.
#[derive(Debug, Default)]
pub(super) struct HotKeys {
    now: HashMap<OperationId, Repeats>,
    before: HashMap<OperationId, Repeats>,
    began_ms: i64,
}

/// How often an operation was repeated; the last repeat tells its key and route.
#[derive(Clone, Debug)]
pub(super) struct Repeats {
    pub(super) last: Arc<OperationEvent>,
    pub(super) count: u64,
}

impl HotKeys {
    pub(super) fn count(&mut self, event: &Arc<OperationEvent>) {
        use EventKind::{Mismatched, RefusedInFlight, Replayed};
        if !matches!(event.kind, Replayed | RefusedInFlight | Mismatched) {
            return;
        }
        self.turn(event.at.as_ms());
        if let Some(repeats) = self.now.get_mut(&event.id) {
            repeats.count += 1;
            repeats.last = event.clone();
        } else {
            self.make_room();
            self.now.insert(event.id, Repeats { last: event.clone(), count: 1 });
        }
    }

    /// The most repeated, most often first.
    pub(super) fn top(&mut self, now_ms: i64) -> Vec<Repeats> {
        self.turn(now_ms);
        let mut all = self.now.clone();
        for (id, before) in &self.before {
            all.entry(*id)
                .and_modify(|now| now.count += before.count)
                .or_insert_with(|| before.clone());
        }
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|repeats| (std::cmp::Reverse(repeats.count), repeats.last.id));
        all.truncate(SHOWN_MAX);
        all
    }

    fn turn(&mut self, now_ms: i64) {
        match now_ms.saturating_sub(self.began_ms) {
            age if age >= 2 * HALF_MS => {
                self.now.clear();
                self.before.clear();
                self.began_ms = now_ms;
            }
            age if age >= HALF_MS => {
                self.before = std::mem::take(&mut self.now);
                self.began_ms = now_ms;
            }
            _ => {}
        }
    }

    fn make_room(&mut self) {
        if self.now.len() >= KEYS_MAX {
            self.now.retain(|_, repeats| {
                repeats.count -= 1;
                repeats.count > 0
            });
        }
    }
}

/// Keys that are counted.
const KEYS_MAX: usize = 1_024;
const SHOWN_MAX: usize = 10;
const HALF_MS: i64 = 5 * 60 * 1_000;
