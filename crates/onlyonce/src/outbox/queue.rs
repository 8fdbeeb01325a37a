//! Where a relay finds messages, and writes down what came of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use uuid::Uuid;

use super::Message;
use super::options::RelayOptions;
use super::sending::Outcome;
use crate::store::BoxError;

/// The committed messages of a database.
///
/// A lease keeps a message from other relays until it is over. Of one lane (a topic and key) only the first message is ever
/// leased; one that is leased, paused or parked keeps the rest of its lane waiting.
pub(super) trait Queue: std::fmt::Debug + Send + Sync {
    /// Leases up to `rows_max` messages that are due.
    fn lease<'a>(
        &'a mut self,
        options: &'a RelayOptions,
        rows_max: usize,
    ) -> BoxFuture<'a, Result<Found, BoxError>>;

    /// Writes down what came of messages whose lease is still ours: shipped ones are deleted, others are given back, and
    /// parked at the limit. Takes out what was written, and returns what was parked. Harmless to repeat.
    fn settle<'a>(
        &'a mut self,
        outcomes: &'a mut Vec<Outcome>,
        options: &'a RelayOptions,
    ) -> BoxFuture<'a, Result<Vec<NewlyParked>, BoxError>>;
}

/// A message that is ours until its lease is over.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    pub(super) message: Arc<Message>,
    pub(super) id: Uuid,
    pub(super) lease: Uuid,
    /// Counted from before the database was asked, so that it is over here before it is over there.
    pub(super) asked_at: Instant,
}

/// What came of asking for messages.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) leased: Vec<Leased>,
    /// All lanes were visited, and none had a message for us.
    pub(super) is_idle: bool,
}

/// A message that was refused too often just now.
#[derive(Debug)]
pub(super) struct NewlyParked {
    pub(super) id: String,
    pub(super) topic: String,
}

/// Lanes that one call visits.
pub(super) const LANES_MAX: usize = 1_000;
/// Messages that one call leases: their payloads must arrive within the time of one answer.
pub(super) const LEASE_ROWS_MAX: usize = 16;
/// When a message is due again that was given back because the sink was unavailable.
pub(super) const OUTAGE_PAUSE: Duration = Duration::from_millis(500);
