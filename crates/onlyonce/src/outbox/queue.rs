//! Where a relay finds messages, and writes down what came of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use uuid::Uuid;

use super::Message;
use super::options::RelayOptions;
use crate::store::BoxError;

/// The committed messages of a database.
///
/// A lease keeps a message from other relays until it is over. Of one lane (a topic and key) only the first message is ever
/// leased; one that is leased, paused or parked keeps the rest of its lane waiting.
pub(super) trait Queue: std::fmt::Debug + Send + Sync {
    /// Leases messages that are due. Their payloads must arrive within the time of one answer.
    fn lease<'a>(
        &'a mut self,
        ask: &'a Ask,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Found, BoxError>>;

    /// Writes down what came of messages whose lease is still ours: shipped ones are deleted, others are given back, and
    /// parked at the limit. Takes out what was written, and returns what was parked. Harmless to repeat.
    fn settle<'a>(
        &'a mut self,
        settled: &'a mut Vec<Settled>,
        options: &'a RelayOptions,
    ) -> BoxFuture<'a, Result<Vec<NewlyParked>, BoxError>>;
}

/// Which messages are asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    /// Only of this topic.
    pub(super) topic: Option<String>,
    /// Only of these lanes of the topic.
    pub(super) lanes: Option<Vec<String>>,
    /// Not of these topics.
    pub(super) except: Vec<String>,
    /// Only of the lanes after this one.
    pub(super) after: Lane,
    pub(super) rows_max: usize,
    /// How many of them may be suspects: messages that were not shipped at their last attempt.
    pub(super) suspects_max: usize,
    /// Whether suspects are taken only if nothing else is found.
    pub(super) is_probe: bool,
}

/// A message that is ours until its lease is over.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    pub(super) message: Arc<Message>,
    pub(super) id: Uuid,
    pub(super) lease: Uuid,
    /// It was not shipped at its last attempt, or is a probe: only some of the places are for these.
    pub(super) is_suspect: bool,
    /// Counted from before the database was asked, so that it is over here before it is over there.
    pub(super) asked_at: Instant,
}

impl Leased {
    /// As both databases make it.
    pub(super) fn lane(&self) -> String {
        let Message { id, key, .. } = &*self.message;
        key.as_ref().map_or_else(|| id.clone(), |key| format!("={key}"))
    }
}

/// What came of asking for messages.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) leased: Vec<Leased>,
    /// The lane where it stopped; `None` after the last one.
    pub(super) stopped: Option<Lane>,
}

/// What came of a message, to be written down.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) leased: Leased,
    pub(super) verdict: Verdict,
    /// Why it was not shipped.
    pub(super) error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Shipped,
    /// The refusal is counted: the message is due again after a pause that doubles with each, or parked.
    Refused,
    /// It is due again after this pause, and nothing is counted.
    Later(Duration),
}

/// A topic and a lane of it.
pub(super) type Lane = (String, String);

/// Where a relay is on a walk over lanes. One call visits [`LANES_MAX`] of them, so a walk may take several.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The lane that was visited last; the empty one is before all others.
    visited: Lane,
    has_leased: bool,
}

impl Walk {
    /// The lane after which the next call begins. If the call fails, the one after it begins a new walk.
    pub(super) fn go_on(&mut self) -> Lane {
        let visited = std::mem::take(&mut self.visited);
        if visited == Lane::default() {
            self.has_leased = false;
        }
        visited
    }

    /// Notes what a call found, and the lane where it stopped: `None` after the last one. Returns whether the walk is over
    /// and has leased nothing.
    pub(super) fn note(&mut self, has_leased: bool, stopped: Option<Lane>) -> bool {
        self.has_leased |= has_leased;
        let is_over = stopped.is_none();
        self.visited = stopped.unwrap_or_default();
        is_over && !self.has_leased
    }
}

/// A message that was refused too often just now.
#[derive(Debug)]
pub(super) struct NewlyParked {
    pub(super) id: String,
    pub(super) topic: String,
}

/// Lanes that one call visits.
pub(super) const LANES_MAX: usize = 1_000;
/// When a message is due again that was not shipped, and is not to blame for it.
pub(super) const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str) -> Option<Lane> {
        Some(("t".to_owned(), name.to_owned()))
    }

    #[test]
    fn a_walk_of_several_calls_is_idle_if_none_of_them_leased() {
        let mut walk = Walk::default();
        for (has_leased, is_idle) in [(false, true), (true, false), (false, true)] {
            assert_eq!(walk.go_on(), Lane::default());
            assert!(!walk.note(false, lane("a")));
            assert_eq!(Some(walk.go_on()), lane("a"));
            assert!(!walk.note(has_leased, lane("b")));
            assert_eq!(Some(walk.go_on()), lane("b"));
            assert_eq!(walk.note(false, None), is_idle);
        }
    }

    #[test]
    fn a_call_that_failed_ends_the_walk() {
        let mut walk = Walk::default();
        walk.go_on();
        walk.note(true, lane("a"));
        walk.go_on();
        assert_eq!(walk.go_on(), Lane::default());
        assert!(walk.note(false, None));
    }
}
