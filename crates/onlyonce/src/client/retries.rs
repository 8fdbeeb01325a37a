//! How a client retries: its limits, and what all of its operations share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::budget::Budget;
use super::environment::Environment;
use super::event::Event;
use super::well_known::Windows;
use crate::clock::SystemClock;

/// The retry policy of a client, and the budget that its operations share. Clones share the same budget.
#[derive(Clone)]
pub struct Retries {
    pub(crate) settings: Settings,
    pub(crate) budget: Arc<Budget>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) windows: Arc<Windows>,
    pub(crate) observer: Option<Observer>,
}

/// Called for each event.
type Observer = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The limits, each with a default.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) attempts_max: u32,
    pub(crate) backoff: Duration,
    pub(crate) backoff_max: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) deadline: Duration,
    pub(crate) window: Option<Duration>,
    pub(crate) answer_bytes_max: usize,
    pub(crate) key_header: HeaderName,
    pub(crate) is_quoted: bool,
    pub(crate) tells_attempt: bool,
    pub(crate) tells_deadline: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            attempts_max: 4,
            backoff: Duration::from_millis(250),
            backoff_max: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(10),
            deadline: Retries::DEADLINE,
            window: None,
            answer_bytes_max: 16 * 1024 * 1024,
            key_header: HeaderName::from_static("idempotency-key"),
            is_quoted: false,
            tells_attempt: true,
            tells_deadline: true,
        }
    }
}

impl Retries {
    /// How long all attempts and the waits between them may take together, unless
    /// [`with_deadline`](Self::with_deadline) says otherwise. A server must keep its answers for longer.
    pub const DEADLINE: Duration = Duration::from_secs(60);

    /// The defaults: four attempts of ten seconds each within a minute, full jitter from a quarter of a
    /// second to ten, and a budget of their own.
    pub fn new() -> Self {
        Self {
            settings: Settings::default(),
            budget: Arc::default(),
            environment: Arc::new(SystemClock),
            windows: Arc::default(),
            observer: None,
        }
    }

    /// How often an operation is sent, at most. Default: 4. Not counted are the first attempt that was
    /// proved never to have been sent, and answers that say that the operation is still running (asked again
    /// until the deadline) or that the server does not know its outcome (asked twice).
    #[must_use]
    pub fn with_attempts(mut self, attempts_max: u32) -> Self {
        self.settings.attempts_max = attempts_max;
        self
    }

    /// How long one attempt may take, half of it at most for the connection. Default: 10 s. If it is shorter
    /// than the server needs, every attempt times out and leaves a doubt.
    #[must_use]
    pub fn with_attempt_timeout(mut self, timeout: Duration) -> Self {
        self.settings.attempt_timeout = timeout;
        self
    }

    /// How long all attempts and the waits between them may take together. Default: 60 s.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// The longest wait before the second attempt, and the longest wait of all. Default: 250 ms and 10 s. Each
    /// wait is drawn at random between zero and its bound, which doubles from the first to the longest.
    #[must_use]
    pub fn with_backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.backoff = first;
        self.settings.backoff_max = longest;
        self
    }

    /// How long the server keeps keys. Default: what its `/.well-known/idempotency` says, else 24 h. If you set
    /// it longer than the server keeps them, a late retry is executed a second time.
    #[must_use]
    pub fn with_window(mut self, window: Duration) -> Self {
        self.settings.window = Some(window);
        self
    }

    /// The largest body of an answer that is read. Default: 16 MiB. An operation with a larger one is
    /// `Done`, without the answer.
    #[must_use]
    pub fn with_answer_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.answer_bytes_max = bytes;
        self
    }

    /// The header that has the key. Default: `Idempotency-Key`.
    #[must_use]
    pub fn with_key_header(mut self, name: HeaderName) -> Self {
        self.settings.key_header = name;
        self
    }

    /// Sends the key in double quotes, as RFC 9651 and strict servers want it. Default: bare, as all others do.
    #[must_use]
    pub fn with_quoted_key(mut self) -> Self {
        self.settings.is_quoted = true;
        self
    }

    /// Leaves out `Idempotency-Attempt`, which is the one header that differs from attempt to attempt.
    #[must_use]
    pub fn without_attempt_header(mut self) -> Self {
        self.settings.tells_attempt = false;
        self
    }

    /// Leaves out `X-Request-Deadline`. A copy that is delayed on its way can then be executed after the
    /// deadline; on the other hand a server whose clock is wrong refuses nothing.
    #[must_use]
    pub fn without_deadline_header(mut self) -> Self {
        self.settings.tells_deadline = false;
        self
    }

    /// Shares a budget with other clients. Default: one of its own.
    #[must_use]
    pub fn with_budget(mut self, budget: Arc<Budget>) -> Self {
        self.budget = budget;
        self
    }

    /// Takes time and randomness from `environment`, for tests.
    #[must_use]
    pub fn with_environment(mut self, environment: impl Environment) -> Self {
        self.environment = Arc::new(environment);
        self
    }

    /// Calls `observer` for each attempt and each wait as they happen.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        if let Some(observer) = &self.observer {
            observer(event);
        }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retries").field("settings", &self.settings).finish_non_exhaustive()
    }
}
