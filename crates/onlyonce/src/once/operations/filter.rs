//! Which operations an operator means.

use std::sync::Arc;
use std::time::Duration;

use super::StoredOperation;
use crate::hex;
use crate::record::{Record, State, StateKind, StateSet};

/// Chooses operations: all that every given value fits. The default chooses all.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationFilter {
    /// In one of these states.
    pub states: StateSet,
    /// Of this route.
    pub route: Option<Arc<str>>,
    /// With exactly this key. They are found without a search.
    pub key: Option<String>,
    /// With a key that begins so.
    pub key_prefix: Option<String>,
    /// Of the caller whose digest begins with these hexadecimal digits, in lower case.
    pub principal: Option<String>,
    /// Unknown for at least so long; in another state: claimed at least so long ago.
    pub older: Option<Duration>,
}

impl Default for OperationFilter {
    fn default() -> Self {
        Self {
            states: StateSet::of(&StateKind::ALL),
            route: None,
            key: None,
            key_prefix: None,
            principal: None,
            older: None,
        }
    }
}

impl OperationFilter {
    /// Whether it chooses this operation. One that has expired is never chosen.
    pub fn matches(&self, operation: &StoredOperation) -> bool {
        let StoredOperation { record, now, .. } = operation;
        let key = record.key.as_str();
        self.states.contains(record.state.kind())
            && !record.is_expired(*now)
            && self.route.as_ref().is_none_or(|route| *route == record.route)
            && self.key.as_ref().is_none_or(|wanted| wanted == key)
            && self.key_prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_str()))
            && self.principal.as_ref().is_none_or(|digits| is_principal(digits, record))
            && self.older.is_none_or(|age| since(record).plus(age) <= *now)
    }
}

fn is_principal(digits: &str, record: &Record) -> bool {
    hex::encode(record.principal.as_bytes()).starts_with(digits)
}

/// The moment from which the age of an operation counts.
fn since(record: &Record) -> crate::clock::StoreTime {
    match record.state {
        State::Unknown { since } => since,
        _ => record.first_claimed_at,
    }
}
