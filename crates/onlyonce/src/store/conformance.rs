//! The suite that every store passes, ours or a stranger's.
//!
//! 1. A store is handed over by a [`Factory`]. Every case asks it for a fresh store.
//! 2. Every promise of the [store contract](super) is a [`Case`]: its name is the behaviour, its
//!    `promise` the sentence that is put to the test.
//! 3. A case passes, fails with a message, or is skipped because the factory declares that the store
//!    does not have what it tests: a clock that can be moved, records that outlive a crash, or bytes
//!    that can be damaged; or because the store's [limits](super::StoreLimits) say that it deletes expired records by itself.
//! 4. No case hangs: after [`CASE_WAIT_MAX`] it has failed.
//! 5. Where the clock cannot be moved the suite waits, some hundredths of a second at a time.
//!
//! It needs a tokio runtime with time enabled and not paused, unless the store's clock is a
//! [`ManualClock`]. Races are as good as the runtime: run them on several threads too. What a real
//! `kill -9` leaves behind is tested by [`durability`], which needs a process to kill; and [`Faulty`]
//! loses, doubles and delays the calls of any store, in other people's tests too.
//!
//! ```
//! use onlyonce::store::conformance::{Factory, Fresh, ManualClock, exercise};
//! use onlyonce::store::memory::MemoryStore;
//!
//! struct Memory;
//!
//! impl Factory for Memory {
//!     type Store = MemoryStore;
//!
//!     async fn fresh(&self) -> Fresh<MemoryStore> {
//!         let clock = ManualClock::new();
//!         Fresh::new(MemoryStore::with_clock(clock.clone())).with_clock(clock)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let report = exercise(&Memory).await;
//! report.assert_passed();
//! println!("{report}");
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

/// The guide for a store of one's own, whose code is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/own-store.md")]
struct OwnStoreGuide;

mod cases;
mod check;
mod clock;
pub mod durability;
mod faulty;
mod lab;
mod report;
mod writes;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

pub use self::cases::cases;
use self::check::Outcome;
pub use self::clock::ManualClock;
pub use self::faulty::{Faulty, Mishap, Reply};
pub use self::report::{Report, Verdict};
use super::{Inspect, Watch};
use crate::scope::OperationId;

/// Makes the stores that the suite tries to break.
pub trait Factory: Send + Sync {
    /// The store under test.
    type Store: Watch + Inspect;

    /// An empty store that nobody else uses, and the hands on its clock if there are any.
    fn fresh(&self) -> impl Future<Output = Fresh<Self::Store>> + Send;

    /// Drops the store without closing it, as a crash would, and opens what it left behind.
    ///
    /// `None`, the default, declares that the store forgets: what needs durability is skipped.
    fn crash(&self, store: Self::Store) -> impl Future<Output = Option<Self::Store>> + Send {
        drop(store);
        std::future::ready(None)
    }

    /// Damages what is stored for `id`, as a failing disk or another version would, so that the next
    /// read meets the damage; it may close and open the store for that.
    ///
    /// `None`, the default, declares that it cannot be done: what needs it is skipped.
    fn damage(
        &self,
        store: Self::Store,
        id: OperationId,
    ) -> impl Future<Output = Option<Self::Store>> + Send {
        drop((store, id));
        std::future::ready(None)
    }

    /// How often each race is run. More finds more, where the runtime has several threads.
    fn rounds(&self) -> usize {
        8
    }
}

/// A store that has just been made.
#[derive(Debug)]
pub struct Fresh<S> {
    store: S,
    clock: Option<ManualClock>,
}

impl<S> Fresh<S> {
    /// A store whose clock nobody can move: the suite waits where time must pass.
    pub const fn new(store: S) -> Self {
        Self { store, clock: None }
    }

    /// The store's time is what `clock` says, now and after a crash.
    #[must_use]
    pub fn with_clock(self, clock: ManualClock) -> Self {
        let clock = Some(clock);
        Self { clock, ..self }
    }
}

/// One promise, and the test of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The behaviour, in words.
    pub name: &'static str,
    /// The sentence of the contract that it tests.
    pub promise: &'static str,
}

impl Case {
    /// The case of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        cases().iter().find(|case| case.name == name)
    }

    /// Puts a fresh store of `factory` to this test.
    pub async fn run(&self, factory: &impl Factory) -> Verdict {
        let case = Caught(cases::start(self.name, factory));
        match tokio::time::timeout(CASE_WAIT_MAX, case).await {
            Ok(outcome) => Verdict::from(outcome),
            Err(_) => Verdict::Failed(format!("no end after {CASE_WAIT_MAX:?}")),
        }
    }
}

/// Puts the stores of `factory` to every test, one after the other.
pub async fn exercise(factory: &impl Factory) -> Report {
    let mut report = Report::default();
    for case in cases() {
        report.add(*case, case.run(factory).await);
    }
    report
}

/// A case at work.
type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A store that panics fails the case at hand, not the whole suite.
struct Caught<'a>(Running<'a>);

impl Future for Caught<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let poll = AssertUnwindSafe(|| self.0.as_mut().poll(context));
        std::panic::catch_unwind(poll).unwrap_or_else(|panic| Poll::Ready(check::panicked(&*panic)))
    }
}

/// How long a case may take before it has failed.
pub const CASE_WAIT_MAX: Duration = Duration::from_secs(30);
