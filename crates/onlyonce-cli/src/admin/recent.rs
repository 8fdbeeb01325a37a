//! What this process saw lately: the last events, and the keys that came most often.

use std::collections::VecDeque;
use std::sync::Arc;

use onlyonce::scope::OperationId;
use onlyonce::{Events, Heard, OperationEvent};

use super::hot_keys::HotKeys;

#[derive(Debug)]
pub(super) struct Recent {
    listener: Events,
    events: VecDeque<Arc<OperationEvent>>,
    pub(super) hot_keys: HotKeys,
}

impl Recent {
    pub(super) fn new(listener: Events) -> Self {
        Self { listener, events: VecDeque::new(), hot_keys: HotKeys::default() }
    }

    /// Takes in what has happened since it was last asked.
    pub(super) fn catch_up(&mut self) {
        while let Some(heard) = self.listener.try_next() {
            if let Heard::Event(event) = heard {
                self.add(event);
            }
        }
    }

    /// The oldest is forgotten for it.
    fn add(&mut self, event: Arc<OperationEvent>) {
        self.hot_keys.count(&event);
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// What is remembered of one operation, oldest first.
    pub(super) fn of(&self, id: OperationId) -> Vec<Arc<OperationEvent>> {
        self.events.iter().filter(|event| event.id == id).cloned().collect()
    }
}

/// Events that are remembered.
const EVENTS_MAX: usize = 10_000;
