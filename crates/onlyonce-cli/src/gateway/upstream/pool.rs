//! HTTP/1.1 connections that wait for their next request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use hyper::client::conn::http1::SendRequest;
use onlyonce::http::Body;
use tokio::time::Instant;

use crate::files::upstream_share;

/// Connections of one thread to one service, in the order in which they were used last.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    sender: SendRequest<Body>,
    /// When the head of its last answer arrived. The service starts its keep-alive timeout at the end of that
    /// answer, which is later: so the idle time counted here is never too short. The moment when the gateway
    /// has read the answer would be too late: a slow client delays it while the service counts.
    used_at: Instant,
    idle_max: Duration,
}

impl Kept {
    fn is_idle_below(&self, idle_max: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.used_at) < idle_max.min(self.idle_max)
    }
}

impl Pool {
    /// Keeps a connection whose answer, with these headers, may still be on its way: it is ready once that
    /// was read to its end. One that is not kept closes then.
    pub(super) fn keep(&self, sender: SendRequest<Body>, answer: &HeaderMap) {
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.retain(|kept| !kept.sender.is_closed());
        }
        if kept.len() < KEPT_MAX && upstream_share().has_room_for_idle() {
            let idle_max = keep_alive(answer).map_or(IDLE_MAX, |told| IDLE_MAX.min(told / 2));
            kept.push(Kept { sender, used_at: Instant::now(), idle_max });
        }
    }

    /// Of the connections that are ready and were idle for less than `idle_max`, the one that was used last.
    pub(super) fn take(&self, idle_max: Duration) -> Option<SendRequest<Body>> {
        let mut kept = self.kept();
        while kept.pop_if(|last| last.sender.is_closed()).is_some() {}
        let now = Instant::now();
        let is_usable = |kept: &Kept| kept.sender.is_ready() && kept.is_idle_below(idle_max, now);
        if let Some(at) = kept.iter().rposition(is_usable) {
            return Some(kept.remove(at).sender);
        }
        let is_worth_keeping = |kept: &Kept| match kept.sender.is_ready() {
            true => kept.is_idle_below(IDLE_MAX, now),
            false => !kept.sender.is_closed(),
        };
        kept.retain(is_worth_keeping);
        None
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After how long without a request the service says that it closes the connection: `timeout=5, max=100`.
fn keep_alive(answer: &HeaderMap) -> Option<Duration> {
    let told = answer.get_all("keep-alive").into_iter().filter_map(|line| line.to_str().ok());
    let seconds = told
        .flat_map(|line| line.split(','))
        .filter_map(|part| part.split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))
        .filter_map(|(_, value)| value.trim().parse().ok());
    seconds.min().map(Duration::from_secs)
}

/// How long a connection is kept without use, and how many are kept.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(30);
const KEPT_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_timeout_that_the_service_tells_counts() {
        let told = |lines: &[&'static str]| {
            let line = |line: &&'static str| {
                (http::HeaderName::from_static("keep-alive"), http::HeaderValue::from_static(line))
            };
            keep_alive(&lines.iter().map(line).collect()).map(|told| told.as_secs())
        };
        assert_eq!(told(&[]), None);
        assert_eq!(told(&["timeout=5"]), Some(5));
        assert_eq!(told(&["max=100, Timeout = 7"]), Some(7));
        assert_eq!(told(&["timeout=9", "timeout=0"]), Some(0));
        assert_eq!(told(&["timeout=soon, max=5, timeout"]), None);
    }
}
