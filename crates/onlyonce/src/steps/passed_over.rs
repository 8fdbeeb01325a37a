//! Due operations that a completer cannot read: told once, and passed over for a while, so that they keep no others waiting.

use std::collections::BTreeSet;
use std::time::Duration;

use super::StepsError;
use super::error::told;
use crate::clock::{Clock, SystemClock};

#[derive(Debug, Default)]
pub(super) struct PassedOver {
    ids: BTreeSet<String>,
    /// When they are looked at again.
    until: Duration,
}

impl PassedOver {
    /// Those that are not to be read now.
    pub(super) fn ids(&mut self) -> Vec<String> {
        if SystemClock.boot() >= self.until {
            self.ids.clear();
        }
        self.ids.iter().cloned().collect()
    }

    /// Notes what could not be read, and says it.
    pub(super) fn note(&mut self, unreadable: Vec<StepsError>) {
        for error in unreadable {
            if self.ids.is_empty() {
                self.until = SystemClock.boot() + PASSED_OVER;
            }
            if let StepsError::Unreadable { operation, .. } = &error
                && self.ids.len() < IDS_MAX
            {
                self.ids.insert(operation.clone());
            }
            tracing::error!(error = told(&error), "an operation cannot be read");
        }
    }
}

/// How many are passed over. Above this, each is said at every look, and they take places of others.
const IDS_MAX: usize = 1_000;
/// How long: somebody may have repaired them.
const PASSED_OVER: Duration = Duration::from_secs(600);
