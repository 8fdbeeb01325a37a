//! What is known of a client's connection: its version, the requests at work, and whether its client reads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

/// Shared by the requests of a connection and the reader and writer of its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionState(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_upgraded: AtomicBool,
    /// Whether what was read tells HTTP/1 from HTTP/2. Only then hyper's timer for heads starts.
    has_version: AtomicBool,
    in_flight: AtomicUsize,
    /// The bytes of answers that are held until they are written.
    unsent_bytes: AtomicUsize,
    /// Whether the last write found no room in the socket.
    is_blocked: AtomicBool,
    /// Whether the last flush found no room: TLS takes bytes and holds them until there is.
    is_unflushed: AtomicBool,
    written_bytes: AtomicU64,
}

impl ConnectionState {
    /// What follows is not HTTP.
    pub(crate) fn upgrade(&self) {
        self.0.is_upgraded.store(true, Ordering::Release);
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.0.is_upgraded.load(Ordering::Acquire)
    }

    /// What was read tells the version.
    pub(super) fn note_version(&self) {
        self.0.has_version.store(true, Ordering::Release);
    }

    pub(super) fn has_version(&self) -> bool {
        self.0.has_version.load(Ordering::Acquire)
    }

    /// Whether no request is at work.
    pub(super) fn is_idle(&self) -> bool {
        self.0.in_flight.load(Ordering::Acquire) == 0
    }

    /// A request is at work until the guard is dropped.
    pub(super) fn begin(&self) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlight(self.clone())
    }

    /// An answer is held until the guard is dropped.
    pub(super) fn hold(&self, bytes: usize) -> Unsent {
        self.0.unsent_bytes.fetch_add(bytes, Ordering::AcqRel);
        Unsent(self.clone(), bytes)
    }

    /// How much is held for the client to read.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.0.unsent_bytes.load(Ordering::Acquire)
    }

    /// Ends when the client has not begun a request, or has taken next to nothing for a while of what is there for
    /// it.
    pub(super) async fn stalled(&self) {
        loop {
            let before = self.0.written_bytes.load(Ordering::Relaxed);
            let was_waiting = self.is_waiting();
            sleep(PROGRESS_WAIT).await;
            let written = self.0.written_bytes.load(Ordering::Relaxed) - before;
            let is_silent = !self.has_version();
            if is_silent || (was_waiting && self.is_waiting() && written < PROGRESS_BYTES_MIN) {
                return;
            }
        }
    }

    fn is_waiting(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        self.unsent_bytes() > 0 || is_set(&self.0.is_blocked) || is_set(&self.0.is_unflushed)
    }

    /// Notes how a flush went.
    pub(super) fn flushed(&self, flushed: &Poll<io::Result<()>>) {
        self.0.is_unflushed.store(flushed.is_pending(), Ordering::Release);
    }

    /// Notes how a write went.
    pub(super) fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.0.is_blocked.store(written.is_pending(), Ordering::Release);
        if let Poll::Ready(Ok(bytes)) = &written {
            self.0.written_bytes.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        written
    }
}

/// An answer that is not yet written.
#[derive(Debug)]
pub(super) struct Unsent(ConnectionState, usize);

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.0.unsent_bytes.fetch_sub(self.1, Ordering::AcqRel);
    }
}

/// A request at work.
#[derive(Debug)]
pub(super) struct InFlight(ConnectionState);

impl InFlight {
    /// The connection that the request came on.
    pub(super) fn connection(&self) -> &ConnectionState {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long a client may say nothing at first, or take next to nothing of what is there for it, and how little
/// that is: more than the answers to many pings on an HTTP/2 connection.
const PROGRESS_WAIT: Duration = Duration::from_secs(30);
const PROGRESS_BYTES_MIN: u64 = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    // threat G6
    #[test]
    fn a_client_that_does_not_read_what_tls_holds_for_it_is_waited_for() {
        let state = ConnectionState::default();
        assert!(state.wrote(Poll::Ready(Ok(1))).is_ready());
        state.flushed(&Poll::Pending);
        assert!(state.is_waiting());
        state.flushed(&Poll::Ready(Ok(())));
        assert!(!state.is_waiting());
    }
}
