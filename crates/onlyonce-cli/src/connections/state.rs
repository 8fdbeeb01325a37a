//! What is known of a connection: its version, the requests at work, whether its client reads, and whether it is to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Shared by the requests of a connection and the reader and writer of its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    opened_at: Instant,
    /// When the last request ended, in milliseconds since then.
    idle_since_ms: AtomicU64,
    has_asked: AtomicBool,
    /// Its peer has shown who it is.
    is_vouched: AtomicBool,
    is_upgraded: AtomicBool,
    /// Whether what was read tells HTTP/1 from HTTP/2. Only then hyper's timer for heads starts.
    has_version: AtomicBool,
    is_http2: AtomicBool,
    in_flight: AtomicUsize,
    /// The bytes of answers that are held until they are written.
    unsent_bytes: AtomicUsize,
    /// Whether the last write found no room in the socket.
    is_blocked: AtomicBool,
    /// Whether the last flush found no room: TLS takes bytes and holds them until there is.
    is_unflushed: AtomicBool,
    written_bytes: AtomicU64,
    /// That no further request is to be taken.
    finish: Notify,
    /// That it is to make room for another connection.
    leave: Notify,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            opened_at: Instant::now(),
            idle_since_ms: AtomicU64::new(0),
            has_asked: AtomicBool::new(false),
            is_vouched: AtomicBool::new(false),
            is_upgraded: AtomicBool::new(false),
            has_version: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            unsent_bytes: AtomicUsize::new(0),
            is_blocked: AtomicBool::new(false),
            is_unflushed: AtomicBool::new(false),
            written_bytes: AtomicU64::new(0),
            finish: Notify::new(),
            leave: Notify::new(),
        }
    }
}

impl ConnectionState {
    /// What follows is not HTTP.
    pub(crate) fn upgrade(&self) {
        self.0.is_upgraded.store(true, Ordering::Release);
    }

    pub(crate) fn is_upgraded(&self) -> bool {
        self.0.is_upgraded.load(Ordering::Acquire)
    }

    /// What was read tells the version.
    pub(crate) fn note_version(&self, is_http2: bool) {
        self.0.is_http2.store(is_http2, Ordering::Release);
        self.0.has_version.store(true, Ordering::Release);
    }

    pub(crate) fn has_version(&self) -> bool {
        self.0.has_version.load(Ordering::Acquire)
    }

    /// Whether no request is at work.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.in_flight.load(Ordering::Acquire) == 0
    }

    /// A request came, and the connection is idle again at once.
    pub(crate) fn ask(&self) {
        self.0.has_asked.store(true, Ordering::Release);
        self.note_idle();
    }

    /// A request is at work until the guard is dropped.
    pub(crate) fn begin(&self) -> InFlight {
        // First, so that one that has just asked is not taken for one that never has.
        self.0.has_asked.store(true, Ordering::Release);
        self.0.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlight(self.clone())
    }

    fn note_idle(&self) {
        let since_ms = self.0.opened_at.elapsed().as_millis();
        self.0.idle_since_ms.store(u64::try_from(since_ms).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Its peer has shown who it is.
    pub(super) fn vouch(&self) {
        self.ask();
        self.0.is_vouched.store(true, Ordering::Release);
    }

    pub(super) fn is_vouched(&self) -> bool {
        self.0.is_vouched.load(Ordering::Acquire)
    }

    /// Whether there was a request on it.
    pub(crate) fn has_asked(&self) -> bool {
        self.0.has_asked.load(Ordering::Acquire)
    }

    /// How long ago it was accepted.
    pub(super) fn age(&self) -> Duration {
        self.0.opened_at.elapsed()
    }

    /// How long it has been idle, if it may be closed for another connection.
    pub(super) fn dismissible_for(&self) -> Option<Duration> {
        let may_leave = !self.is_upgraded() && !self.is_vouched() && !self.is_waiting();
        self.idle_for().filter(|_| may_leave)
    }

    /// How long no request has been at work.
    fn idle_for(&self) -> Option<Duration> {
        let since = Duration::from_millis(self.0.idle_since_ms.load(Ordering::Acquire));
        self.is_idle().then(|| self.age().saturating_sub(since))
    }

    /// Ends when no request has been at work for so long.
    pub(crate) async fn idle(&self, wait: Duration) {
        loop {
            let left = self.idle_for().map_or(wait, |idle_for| wait.saturating_sub(idle_for));
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }

    /// Ends when an HTTP/2 connection has been idle for as long as one of HTTP/1 may be. hyper itself looks at the latter
    /// only; its PINGs are answered by any client.
    pub(crate) async fn idle_http2(&self) {
        loop {
            self.idle(IDLE_MAX).await;
            if self.0.is_http2.load(Ordering::Acquire) {
                return;
            }
            sleep(IDLE_MAX).await;
        }
    }

    /// Lets the requests end that are there, and takes no further one.
    pub(crate) fn finish(&self) {
        self.0.finish.notify_one();
    }

    /// Ends when it is to take no further request.
    pub(crate) async fn told_to_finish(&self) {
        self.0.finish.notified().await;
    }

    /// Makes room for another connection.
    pub(super) fn leave(&self) {
        self.0.leave.notify_one();
    }

    /// Ends when it is to make room.
    pub(crate) async fn told_to_leave(&self) {
        self.0.leave.notified().await;
    }

    /// An answer is held until the guard is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Unsent {
        self.0.unsent_bytes.fetch_add(bytes, Ordering::AcqRel);
        Unsent(self.clone(), bytes)
    }

    /// How much is held for the client to read.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.0.unsent_bytes.load(Ordering::Acquire)
    }

    /// Ends when the client has not begun a request, or has taken next to nothing for a while of what is there for
    /// it.
    pub(crate) async fn stalled(&self) {
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
    pub(crate) fn flushed(&self, flushed: &Poll<io::Result<()>>) {
        self.0.is_unflushed.store(flushed.is_pending(), Ordering::Release);
    }

    /// Notes how a write went.
    pub(crate) fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.0.is_blocked.store(written.is_pending(), Ordering::Release);
        if let Poll::Ready(Ok(bytes)) = &written {
            self.0.written_bytes.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        written
    }
}

/// An answer that is not yet written.
#[derive(Debug)]
pub(crate) struct Unsent(ConnectionState, usize);

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.0.unsent_bytes.fetch_sub(self.1, Ordering::AcqRel);
    }
}

/// A request at work.
#[derive(Debug)]
pub(crate) struct InFlight(ConnectionState);

impl InFlight {
    /// The connection that the request came on.
    pub(crate) fn connection(&self) -> &ConnectionState {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Before the count, so that nobody takes the connection for one that has been idle for long.
        self.0.note_idle();
        self.0.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long a client may be silent between two requests, and take for the head of one.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(30);
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
