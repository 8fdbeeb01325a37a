//! An answer of the store that is kept for a moment: one question for however many pages look.

use std::time::Duration;

use onlyonce::OperateError;
use onlyonce::clock::{Clock, SystemClock};
use tokio::sync::Mutex;
use tokio::time::timeout;

#[derive(Debug)]
pub(super) struct Asked<T> {
    fresh_for: Duration,
    /// When it was answered, on the boot clock. Held while the store is asked.
    answer: Mutex<Option<(Duration, Option<T>)>>,
}

impl<T: Copy> Asked<T> {
    pub(super) fn new(fresh_for: Duration) -> Self {
        Self { fresh_for, answer: Mutex::default() }
    }

    /// `None` while the store does not answer.
    pub(super) async fn read(
        &self,
        ask: impl Future<Output = Result<T, OperateError>>,
    ) -> Option<T> {
        let mut kept = self.answer.lock().await;
        let is_fresh = |at: Duration| SystemClock.boot().saturating_sub(at) < self.fresh_for;
        match *kept {
            Some((at, answer)) if is_fresh(at) => answer,
            _ => {
                let answer = timeout(STORE_WAIT, ask).await.ok().and_then(Result::ok);
                *kept = Some((SystemClock.boot(), answer));
                answer
            }
        }
    }
}

/// How long a page waits for a store that does not answer.
const STORE_WAIT: Duration = Duration::from_secs(3);
