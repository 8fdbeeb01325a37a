//! Policies for common kinds of routes.

use http::StatusCode;

use super::{DAY, HOUR, KeyNeed, Policy, Recovery, Statuses};
use crate::fingerprint::{FingerprintRules, Pointer};
use crate::key::KeySource;

impl Policy {
    /// Charges, transfers, orders: a key of 16 to 255 characters is required, answers are kept 24 hours.
    pub fn payments() -> Self {
        Self { key: KeyNeed::Required, ..Self::named("payments") }.with_key_length(16, 255)
    }

    /// Accounts and forms: answers are kept one hour.
    pub fn signup() -> Self {
        Self { ttl: HOUR, ..Self::named("signup") }
    }

    /// Events that a sender delivers again for days: answers are kept seven days, and a delivery that failed is
    /// run again when it comes again.
    ///
    /// 5xx, 408 and 429 free the key, and so does a delivery without a whole answer (a timeout, a panic, a broken
    /// connection). 2xx, 3xx and other 4xx are kept, except 409 with `Retry-After`. **So a handler may run twice for
    /// one event**: after it failed with half of its work done, or while it still runs past its timeout. The handler
    /// must remove such duplicates itself.
    pub fn webhook() -> Self {
        Self {
            ttl: 7 * DAY,
            not_executed: vec![
                StatusCode::REQUEST_TIMEOUT.into(),
                StatusCode::TOO_MANY_REQUESTS.into(),
                Statuses::ServerErrors,
            ],
            recovery: Recovery::Release,
            ..Self::named("webhook").unmetered()
        }
    }

    /// Long jobs: answers are kept 30 days, and unknown outcomes held 60.
    pub fn job() -> Self {
        Self { ttl: 30 * DAY, hold_max: 60 * DAY, ..Self::named("job").unmetered() }
    }

    /// Calls of JSON-RPC: the key is the member `/params/idempotencyKey`, and the `id` of a message is no part of the
    /// operation: a retry with another `id` gets the first result under its own. Messages without a key pass.
    pub fn json_rpc() -> Self {
        Self::messages("jsonrpc", "/params/idempotencyKey", ["/id", "/params/idempotencyKey"])
    }

    /// Calls of the Model Context Protocol: as [`json_rpc`](Self::json_rpc), with the key in
    /// `/params/_meta/idempotencyKey`. Nothing of `_meta` is a part of the operation.
    pub fn mcp() -> Self {
        Self::messages("mcp", "/params/_meta/idempotencyKey", ["/id", "/params/_meta"])
    }

    fn messages(route: &str, key: &str, exclude: [&str; 2]) -> Self {
        let pointer = |text: &str| text.parse::<Pointer>().expect("it is a JSON pointer");
        let exclude = exclude.map(pointer).to_vec();
        Self {
            key_from: vec![KeySource::Json(pointer(key))],
            fingerprint: FingerprintRules { exclude, ..FingerprintRules::default() },
            is_json_rpc: true,
            ..Self::named(route)
        }
    }

    /// For callers that are no strangers, and keep their keys for long.
    fn unmetered(self) -> Self {
        self.with_live_keys_max(0).with_live_bytes_max(0)
    }

    fn named(route: &str) -> Self {
        Self { route: route.into(), ..Self::default() }
    }
}
