//! How many files this process may have open, and how many connections that is. A connection is a file, and so is the
//! store: whoever uses up all of them stops every listener at once, so each kind has its share.

use std::num::NonZeroUsize;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::{info, warn};

use crate::connections::Occasional;

/// What this process may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    /// `None`: as many as it likes.
    may_open: Option<u64>,
}

/// How the files are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Connections of clients.
    pub(crate) clients: usize,
    /// Connections of operators.
    pub(crate) operators: usize,
    /// Connections to services.
    pub(crate) upstream: usize,
}

/// What a gateway needs that has so many operations under way: each has the connection of its client, and one to the
/// service.
pub(crate) fn needed(executing_max: usize) -> u64 {
    2 * executing_max as u64 + BESIDE + OPERATORS_MAX as u64
}

impl Files {
    /// Raises the soft limit to what is needed, as far as the hard one allows.
    pub(crate) fn raised(executing_max: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let wanted = needed(executing_max).min(limit.maximum.unwrap_or(u64::MAX));
        if limit.current.is_some_and(|current| current < wanted) {
            // Where the system has a smaller limit of its own, the old one stays, and is what is told.
            let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
        }
        Self { may_open: getrlimit(Resource::Nofile).current }
    }

    /// Says what there is, and what is needed.
    pub(crate) fn tell(self, executing_max: usize, shares: &Shares) {
        let needs = needed(executing_max);
        match self.may_open {
            Some(may_open) if may_open < needs => warn!(
                "this process may open {may_open} files, and needs {needs} for the {executing_max} operations that \
                 `executing_max` allows: it serves at most {} connections of clients and {} of operators at once, and opens {} \
                 to services; raise the limit (LimitNOFILE={needs} in the systemd unit, or ulimit -n {needs})",
                shares.clients, shares.operators, shares.upstream,
            ),
            may_open => info!(may_open, needs, "files that this process may open, and needs"),
        }
    }

    /// The shares, for so many threads that serve clients. The store has the rest.
    pub(crate) fn shares(self, threads: NonZeroUsize) -> Shares {
        let clients_max = threads.get().saturating_mul(CLIENTS_PER_THREAD_MAX);
        let files = self.may_open.and_then(|files| usize::try_from(files).ok());
        let Some(files) = files else {
            let upstream = Semaphore::MAX_PERMITS;
            return Shares { clients: clients_max, operators: OPERATORS_MAX, upstream };
        };
        let operators = (files / 8).clamp(OPERATORS_MIN, OPERATORS_MAX);
        let rest = files.saturating_sub(operators + BESIDE as usize);
        let clients = (rest / 2).clamp(CLIENTS_MIN, clients_max);
        let upstream = rest.saturating_sub(clients).clamp(CLIENTS_MIN, Semaphore::MAX_PERMITS);
        Shares { clients, operators, upstream }
    }
}

/// The connections that this process may have to services, whoever opens them.
pub(crate) fn upstream_share() -> &'static UpstreamShare {
    UPSTREAM.get_or_init(|| UpstreamShare::new(Semaphore::MAX_PERMITS))
}

/// Says how many these are; the first word counts.
pub(crate) fn set_upstream_share(connections_max: usize) {
    let _ = UPSTREAM.set(UpstreamShare::new(connections_max));
}

/// One for the process, as its limit of files is.
static UPSTREAM: OnceLock<UpstreamShare> = OnceLock::new();

/// Room for connections to services.
#[derive(Debug)]
pub(crate) struct UpstreamShare {
    room: Semaphore,
    max: usize,
    is_full: Occasional,
}

impl UpstreamShare {
    fn new(max: usize) -> Self {
        Self { room: Semaphore::new(max), max, is_full: Occasional::default() }
    }

    /// Room for one, as soon as there is some.
    pub(crate) async fn permit(&self) -> SemaphorePermit<'_> {
        if let Ok(permit) = self.room.try_acquire() {
            return permit;
        }
        let max = self.max;
        self.is_full.note(|times| {
            warn!(max, times, "as many connections to services are open as this process may have: a request waits for one");
        });
        self.room.acquire().await.expect("the semaphore is never closed")
    }

    /// Whether one may stay open that is not in use: not while more than half of them are open.
    pub(crate) fn has_room_for_idle(&self) -> bool {
        self.room.available_permits() >= self.max / 2
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.max.saturating_sub(self.room.available_permits())
    }
}

/// Listeners, the store and its connections, runtimes, logs.
const BESIDE: u64 = 64;
/// Connections of clients for each thread that serves them.
const CLIENTS_PER_THREAD_MAX: usize = 10_000;
const CLIENTS_MIN: usize = 8;
const OPERATORS_MAX: usize = 256;
const OPERATORS_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(may_open: Option<u64>) -> Shares {
        Files { may_open }.shares(NonZeroUsize::new(2).unwrap())
    }

    // threat K28
    #[test]
    fn every_kind_of_connection_has_its_share_of_the_files() {
        for files in [256, 1_024, 20_000, 1_048_576] {
            let Shares { clients, operators, upstream } = shares(Some(files));
            let all = (clients + operators + upstream) as u64 + BESIDE;
            assert!(all <= files, "{files}: {all}");
            assert!(operators >= 32 && clients >= 80 && upstream >= clients, "{files}");
        }
        assert_eq!(shares(None).clients, 20_000);
        assert_eq!(shares(Some(0)).clients, CLIENTS_MIN);
    }
}
