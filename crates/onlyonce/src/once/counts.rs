//! How often each thing happened: executions, replays, refusals.

use std::sync::atomic::{AtomicU64, Ordering};

use super::latency::Histogram;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened since this [`Once`](crate::Once) was built.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counts {
            /// The sum of both.
            pub fn plus(self, more: Self) -> Self {
                Self { $($name: self.$name + more.$name,)* }
            }

            /// Each count with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            /// How long handlers took.
            pub(crate) handler: Histogram,
            /// How long guarded requests took.
            pub(crate) request: Histogram,
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Counts {
                Counts { $($name: self.$name.value(),)* }
            }
        }
    };
}

counts! {
    /// Operations that were executed here.
    executed,
    /// Retries that were answered from a record.
    replayed,
    /// Keys that came with another request.
    reused,
    /// Retries that were told that the first still runs.
    in_progress,
    /// Requests whose outcome was unknown when they were answered: first ones, which count in `executed` too, and retries.
    unknown,
    /// Claims that were given back because nothing was executed.
    released,
    /// Late writes of an owner whose record had been taken by another.
    fenced,
    /// Running records that were marked unknown because their owner was silent.
    reaped,
    /// Expired records that were deleted.
    swept,
    /// Claims that were disowned because the store did not answer in time.
    disowned,
    /// Requests with a guarded method that had no key, and ran unguarded.
    unkeyed,
    /// Requests that were refused before any claim, for their key, their caller, their size or their method.
    refused,
    /// Duplicates that waited for the answer of the first.
    waited,
    /// Operations that were begun again: after an unknown outcome that is redriven, or after a release.
    takeovers,
    /// Requests that were refused because the store was down.
    store_down,
    /// Requests that ran unguarded because the store was down and the policy says so.
    passed,
    /// Requests that were refused because a bound of this process was reached.
    overloaded,
    /// Requests that came too late for the deadline that they said, and were not executed.
    deadline_exceeded,
    /// Keys that were not executed because their answer may have expired.
    key_expired,
    /// Requests that were not executed because their caller had begun too many operations, or had too many keys.
    velocity_exceeded,
    /// Retries that were not answered from their record, because the credentials of their caller no longer hold, or could
    /// not be checked.
    unauthorized,
    /// Operations that began with a key and a request that another caller had sent before: the sign that
    /// callers are told apart by something that changes between two tries.
    changed_principal,
    /// Operations that a caller began with a request that it had sent under another key just before.
    rekeyed,
    /// Renewals that the store did not confirm.
    renewals_unsure,
    /// Leases that were lost while their operation ran: the record was marked unknown, or was taken by another.
    renewals_lost,
    /// Outcomes that the store did not take at the first try.
    settles_retried,
    /// Answers that were given up because the store did not take them for too long.
    unsettled,
    /// Readings that the audit trail could not take; it says how many they were.
    audit_dropped,
    /// Observe mode: requests that would have been executed as the first with their key.
    observed_executed,
    /// Observe mode: requests that ran, and would have been answered from a record.
    observed_replayed,
    /// Observe mode: requests that ran, and would have been refused because their key belongs to another request.
    observed_reused,
    /// Observe mode: requests that ran, and would have been told that the first still runs.
    observed_in_progress,
    /// Observe mode: requests that ran, and would have been told that the outcome is unknown.
    observed_unknown,
    /// Observe mode: requests that ran, and would have been refused for their key, their caller or their size.
    observed_refused,
    /// Observe mode: requests that ran unseen, because their body could not be read or the store did not answer.
    unobserved,
}

impl Counts {
    /// The counts of a route in observe mode, under the names of what would have happened.
    pub(crate) fn as_observed(self) -> Self {
        Self {
            observed_executed: self.executed,
            observed_replayed: self.replayed,
            observed_reused: self.reused,
            observed_in_progress: self.in_progress,
            observed_unknown: self.unknown,
            observed_refused: self.observed_refused,
            unkeyed: self.unkeyed,
            unobserved: self.unobserved + self.store_down + self.passed + self.overloaded,
            rekeyed: self.rekeyed,
            changed_principal: self.changed_principal,
            fenced: self.fenced,
            disowned: self.disowned,
            ..Self::default()
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
