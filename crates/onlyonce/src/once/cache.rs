//! Completed records in this process, in front of the store.
//!
//! A completed record does not change until it expires, so a copy of it may answer a retry: until the record
//! expires, and for at most [`CACHE_AGE_MAX`]. The cache never authorises an execution.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache as Bounded;

use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::record::{Record, Response, State};
use crate::scope::OperationId;

/// How long a copy may answer.
pub(crate) const CACHE_AGE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Cache(Bounded<OperationId, Entry, Weight>);

#[derive(Clone, Debug)]
struct Entry {
    fingerprint: Fingerprint,
    response: Arc<Response>,
    expires_at: StoreTime,
    read_at: Duration,
}

impl Cache {
    /// A cache of at most `bytes_max`.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let entries = usize::try_from(bytes_max / ENTRY_BYTES).unwrap_or(usize::MAX);
        Self(Bounded::with_weighter(entries.min(ENTRIES_EXPECTED_MAX), bytes_max, Weight))
    }

    /// The response of `id`, and the fingerprint of the request it belongs to.
    pub(crate) fn find(
        &self,
        id: OperationId,
        now: StoreTime,
        boot: Duration,
    ) -> Option<(Fingerprint, Arc<Response>)> {
        let entry = self.0.get(&id)?;
        let is_fresh = boot.saturating_sub(entry.read_at) < CACHE_AGE_MAX && now < entry.expires_at;
        is_fresh.then_some((entry.fingerprint, entry.response))
    }

    /// Keeps a copy of `record`, read or written at `boot`, if it is completed.
    pub(crate) fn keep(&self, id: OperationId, record: &Record, boot: Duration) {
        if let State::Completed { expires_at, response, .. } = &record.state {
            self.keep_response(id, record.fingerprint, response.clone(), *expires_at, boot);
        }
    }

    /// Drops the copy of `id`.
    pub(crate) fn remove(&self, id: OperationId) {
        self.0.remove(&id);
    }

    /// Keeps a copy of a response that was just settled.
    pub(crate) fn keep_response(
        &self,
        id: OperationId,
        fingerprint: Fingerprint,
        response: Arc<Response>,
        expires_at: StoreTime,
        read_at: Duration,
    ) {
        self.0.insert(id, Entry { fingerprint, response, expires_at, read_at });
    }
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<OperationId, Entry> for Weight {
    fn weight(&self, _: &OperationId, entry: &Entry) -> u64 {
        ENTRY_BYTES + entry.response.bytes() as u64
    }
}

/// About how many bytes an entry takes besides its body and headers.
const ENTRY_BYTES: u64 = 512;
const ENTRIES_EXPECTED_MAX: usize = 100_000;
