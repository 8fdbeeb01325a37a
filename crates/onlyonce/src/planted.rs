//! Bugs that tests plant, to see that the tests find them.
//!
//! They are only in a build with the feature `planted`, and there each is off unless the environment names it:
//! `ONLYONCE_PLANTED=no_fence`. In every other build [`planted`] is the constant `false`, and the compiler removes what
//! depends on it. `scripts/planted` prints which layer of the tests finds which bug.

#[cfg(feature = "planted")]
use std::sync::OnceLock;

/// Whether this bug is on.
#[cfg(not(feature = "planted"))]
#[inline]
pub const fn planted(_: Planted) -> bool {
    false
}

/// Whether this bug is on.
///
/// # Panics
/// If the environment names a bug that there is not: a test of nothing would pass.
#[cfg(feature = "planted")]
#[inline]
pub fn planted(bug: Planted) -> bool {
    static NAMED: OnceLock<Option<Planted>> = OnceLock::new();
    let named = NAMED.get_or_init(|| {
        let name = std::env::var("ONLYONCE_PLANTED").ok().filter(|name| !name.is_empty())?;
        let found = Planted::ALL.iter().find(|bug| bug.name() == name);
        let bug = found.unwrap_or_else(|| panic!("ONLYONCE_PLANTED={name} is no planted bug"));
        eprintln!("onlyonce: a bug is planted, and promises are broken: {name}");
        Some(*bug)
    });
    *named == Some(bug)
}

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident = $name:literal,)+) => {
        /// A bug of the kind that idempotency layers really have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Planted {
            $($(#[$doc])+ $bug,)+
        }

        impl Planted {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug,)+];

            /// How the environment names it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    /// A request executes the operation although the claim is another's.
    NoClaim = "no_claim",
    /// An owner's write counts although another attempt owns the record.
    NoFence = "no_fence",
    /// What was sent and has no whole answer is released.
    ReleaseOnError = "release_on_error",
    /// A retry executes what is unknown, as if there were no record.
    UnknownIsAbsent = "unknown_is_absent",
    /// A retry takes over what is running.
    RunningIsAbsent = "running_is_absent",
    /// A running record expires with its time to live.
    RunningExpires = "running_expires",
    /// The time to live counts from the first request, not from the completion.
    TtlFromStart = "ttl_from_start",
    /// The sweep deletes running and unknown records.
    SweepIgnoresState = "sweep_ignores_state",
    /// The reaper takes a lease for over when the store's clock says so.
    ReaperByStoreClock = "reaper_by_store_clock",
    /// A node follows a store's clock that is set forward.
    TrustedTimeOff = "trusted_time_off",
    /// Leases are not renewed.
    NoRenewal = "no_renewal",
    /// The caller is told before the store has the answer.
    CompletesBeforeCommit = "completes_before_commit",
    /// A waiter that waits no longer deletes the record.
    WaiterDeletes = "waiter_deletes",
    /// The work is dropped with the connection of its client.
    CancelsWithClient = "cancels_with_client",
    /// A process that ends, or a task that dies, releases what it has sent.
    DrainingReleases = "draining_releases",
    /// A process that starts releases what the one before it left running.
    RestartReleases = "restart_releases",
    /// Fingerprints are not compared.
    MismatchIgnored = "mismatch_ignored",
    /// Only the first bytes of a body make its fingerprint.
    FingerprintCutShort = "fingerprint_cut_short",
    /// Of two keys in one request the first is taken.
    DoubledKeyTaken = "doubled_key_taken",
    /// The parts of a scope are joined with a colon, without their lengths.
    ScopeJoinedWithColon = "scope_joined_with_colon",
    /// The caller is no part of the scope.
    PrincipalIgnored = "principal_ignored",
    /// An empty credential is the credential of a caller.
    EmptyPrincipalShared = "empty_principal_shared",
    /// A replay has the status 200, whatever the first answer had.
    ReplayOtherStatus = "replay_other_status",
    /// A replay has no body.
    ReplayWithoutBody = "replay_without_body",
    /// An answer that broke off is kept as the whole one.
    CutAnswerKept = "cut_answer_kept",
    /// An answer that is too large to be kept frees the key.
    LargeAnswerReleases = "large_answer_releases",
    /// An answer with a status of 500 or more frees the key.
    ServerErrorReleases = "server_error_releases",
    /// A request that broke off after it was sent is taken for one that was never sent.
    SentIsUnsent = "sent_is_unsent",
    /// The upstream is asked by the client's key, not by the one that it was sent.
    ReconcileByRawKey = "reconcile_by_raw_key",
    /// A later attempt carries no key.
    RedriveWithoutKey = "redrive_without_key",
}
