//! Time that passes only when the client waits, and dice that are known.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::client::{Client, Environment, Retries};
use onlyonce::clock::{Clock, StoreTime};
use tokio::sync::Notify;

/// A clock that the client's own waits move. What it sleeps beside an attempt, to bound it, ends only when
/// the server says that it hangs.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestTime(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    now: Mutex<Duration>,
    waits: Mutex<Vec<Duration>>,
    hangs: Notify,
}

impl TestTime {
    /// All waits so far.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.0.waits.lock().unwrap().clone()
    }

    pub(crate) fn pass(&self, time: Duration) {
        *self.0.now.lock().unwrap() += time;
    }

    /// The attempt that is under way has taken too long.
    pub(crate) fn time_out(&self) {
        self.pass(ATTEMPT_TIMEOUT);
        self.0.hangs.notify_one();
    }

    pub(crate) fn retries(&self) -> Retries {
        Retries::new()
            .with_environment(self.clone())
            .with_attempt_timeout(ATTEMPT_TIMEOUT)
            .with_window(Duration::from_secs(86_400))
            .with_backoff(BACKOFF, BACKOFF_MAX)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new().with_retries(self.retries())
    }
}

impl Clock for TestTime {
    fn wall(&self) -> StoreTime {
        StoreTime::from_ms(START_MS).plus(*self.0.now.lock().unwrap())
    }

    fn boot(&self) -> Duration {
        *self.0.now.lock().unwrap()
    }
}

impl Environment for TestTime {
    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let time = self.clone();
        if wait == ATTEMPT_TIMEOUT || wait == ASK_WAIT {
            return Box::pin(async move { time.0.hangs.notified().await });
        }
        self.0.waits.lock().unwrap().push(wait);
        self.pass(wait);
        Box::pin(std::future::ready(()))
    }

    /// The longest wait each time.
    fn random(&self) -> u64 {
        u64::MAX
    }
}

/// None of its doubles is a wait that the clock holds back.
pub(crate) const BACKOFF: Duration = Duration::from_millis(240);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(10);
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(7001);
/// How long a question about the server may take.
pub(crate) const ASK_WAIT: Duration = Duration::from_secs(2);
/// Sun, 06 Nov 1994 08:49:37 GMT.
const START_MS: i64 = 784_111_777_000;
