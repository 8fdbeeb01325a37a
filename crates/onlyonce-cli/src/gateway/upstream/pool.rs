//! HTTP/1.1 connections that wait for their next request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use onlyonce::http::Body;
use tokio::time::Instant;

/// Connections of one thread to one service, in the order in which they were used last.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<(SendRequest<Body>, Instant)>>);

impl Pool {
    /// Keeps a connection whose answer may still be on its way: it is ready once that was read to its end.
    /// One that is not kept closes then.
    pub(super) fn keep(&self, sender: SendRequest<Body>) {
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.retain(|(sender, _)| !sender.is_closed());
        }
        if kept.len() < KEPT_MAX {
            kept.push((sender, Instant::now()));
        }
    }

    /// A connection that is likely still open: of those that are ready, the one that was used last.
    pub(super) fn take(&self) -> Option<SendRequest<Body>> {
        let mut kept = self.kept();
        while kept.pop_if(|(sender, _)| sender.is_closed()).is_some() {}
        let at = kept.iter().rposition(|(sender, _)| sender.is_ready())?;
        let (sender, used_at) = kept.remove(at);
        if used_at.elapsed() < IDLE_MAX {
            return Some(sender);
        }
        // Those before it were used even earlier.
        kept.retain(|(sender, _)| !sender.is_ready());
        None
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(SendRequest<Body>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a connection is kept without use, and how many are kept.
const IDLE_MAX: Duration = Duration::from_secs(30);
const KEPT_MAX: usize = 512;
