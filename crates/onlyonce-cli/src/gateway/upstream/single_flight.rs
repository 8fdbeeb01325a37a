//! Work that is done once for everybody who waits for its result.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// At most one piece of work at a time. Whoever asks while it is under way waits for the same result.
#[derive(Debug)]
pub(super) struct SingleFlight<T>(Mutex<Option<watch::Receiver<Option<T>>>>);

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// The result of the work under way, else of `work`. The work is a task of its own: it goes on if the
    /// caller who began it leaves. Nothing if it panicked or its runtime has ended.
    pub(super) async fn join(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let mut result = self.under_way(work);
        let result = result.wait_for(Option::is_some).await;
        result.ok().and_then(|result| result.clone())
    }

    fn under_way(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> watch::Receiver<Option<T>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = slot.as_ref().filter(|result| is_pending(result)) {
            return result.clone();
        }
        let (tell, told) = watch::channel(None);
        tokio::spawn(async move { tell.send_replace(Some(work.await)) });
        *slot = Some(told.clone());
        told
    }
}

/// A result that is already there is from an earlier time: a new caller starts new work.
fn is_pending<T>(result: &watch::Receiver<Option<T>>) -> bool {
    result.has_changed().is_ok() && result.borrow().is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn those_who_ask_together_share_one_piece_of_work() {
        let flight = SingleFlight::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = || {
            let begun = begun.clone();
            async move {
                tokio::task::yield_now().await;
                begun.fetch_add(1, Ordering::Relaxed)
            }
        };
        let (one, two) = tokio::join!(flight.join(count()), flight.join(count()));
        assert_eq!((one, two), (Some(0), Some(0)));
        assert_eq!(flight.join(count()).await, Some(1), "a later one has its own");
    }

    #[tokio::test]
    async fn the_work_goes_on_without_the_caller_who_began_it() {
        let flight = SingleFlight::default();
        let gate = Arc::new(Notify::new());
        let opened = gate.clone();
        let mut first = Box::pin(flight.join(async move {
            opened.notified().await;
            1
        }));
        assert!(futures_util::poll!(&mut first).is_pending());
        let second = flight.join(async { 2 });
        drop(first);
        gate.notify_one();
        assert_eq!(second.await, Some(1));
    }

    #[tokio::test]
    async fn work_that_panics_gives_no_result_and_blocks_nobody() {
        let flight = SingleFlight::<u8>::default();
        assert_eq!(flight.join(async { panic!("as the test wants") }).await, None);
        assert_eq!(flight.join(async { 3 }).await, Some(3));
    }
}
