//! The counters by name, and what each one says. `docs/metrics.md` has the same names.

/// Counted for each route.
pub(super) const BY_ROUTE: [(&str, &str); 28] = [
    ("executed", "Operations executed"),
    ("replayed", "Retries answered with the stored response"),
    ("reused", "Requests refused because their key was used for a different request"),
    ("in_progress", "Retries refused because the first request is still running"),
    (
        "unknown",
        "Requests whose outcome was unknown when they were answered, first ones and retries",
    ),
    ("refused", "Requests refused before any claim, for their key, caller, size or method"),
    ("unkeyed", "Requests with a guarded method and no key, which ran unguarded"),
    ("waited", "Retries that waited for the response of the first request"),
    ("takeovers", "Operations begun again after a redrive or a release"),
    ("released", "Operations released because nothing was executed; their key can be used again"),
    ("fenced", "Results refused because another attempt had taken the operation over"),
    ("disowned", "Claims given up because the store did not answer in time; nothing was executed"),
    ("store_down", "Requests refused because the store was unavailable"),
    ("passed", "Requests executed without protection because the store was unavailable"),
    ("overloaded", "Requests refused because a limit of this process was reached"),
    ("deadline_exceeded", "Requests not executed because their own deadline had passed"),
    ("key_expired", "Requests not executed because their key is older than answers are kept"),
    (
        "velocity_exceeded",
        "Requests not executed because a velocity limit or the limit of live keys was reached",
    ),
    (
        "unauthorized",
        "Retries not answered from their record, because their caller's credentials no longer hold or could not be checked",
    ),
    (
        "changed_principal",
        "Operations begun with a key and a request that another caller had sent before",
    ),
    ("rekeyed", "Operations begun with a request that its caller had just sent under another key"),
    ("observed_executed", "Observe mode: first requests, which would have been executed"),
    (
        "observed_replayed",
        "Observe mode: retries, which would have been answered with the stored response",
    ),
    ("observed_reused", "Observe mode: requests whose key belongs to another request"),
    ("observed_in_progress", "Observe mode: retries whose first request was still running"),
    ("observed_unknown", "Observe mode: requests whose outcome would have been unknown"),
    (
        "observed_refused",
        "Observe mode: requests that would have been refused for key, caller or size",
    ),
    ("unobserved", "Observe mode: requests that were executed without being watched"),
];

/// Counted for all routes together.
pub(super) const IN_ALL: [(&str, &str); 7] = [
    ("audit_dropped", "Retries and refusals that the audit trail could not take; it says how many"),
    ("reaped", "Operations marked unknown because the process that executed them went silent"),
    ("swept", "Expired records deleted"),
    ("renewals_unsure", "Lease renewals that the store did not confirm"),
    ("renewals_lost", "Leases lost while their operation ran"),
    ("settles_retried", "Outcomes that the store did not take at the first try"),
    ("unsettled", "Responses given up because the store did not accept them"),
];
