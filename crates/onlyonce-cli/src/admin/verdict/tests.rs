use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{KeyText, Token};
use onlyonce::scope::{OperationId, Principal};

use super::*;

/// 2026-11-17 14:02:07 UTC.
const SENT: i64 = 1_794_924_127_000;

fn operation(state: State, now_ms: i64) -> StoredOperation {
    let record = Record {
        token: Token::from_bytes([1; 16]),
        count: 1,
        attempt: 1,
        state,
        taken_from: None,
        key: KeyText::new("order-1"),
        fingerprint: Fingerprint { version: 1, canonical: [0; 32], raw: [0; 32] },
        principal: Principal::anonymous(),
        route: Arc::from("POST /charges"),
        target: Arc::from(""),
        first_claimed_at: StoreTime::from_ms(SENT),
        lease_ms: 30_000,
        quiet_ms: 60_000,
        ttl_ms: 1_000_000,
    };
    StoredOperation::new(OperationId::from_bytes([7; 16]), record, StoreTime::from_ms(now_ms))
}

fn completed(settled_by: SettledBy, body: Kept) -> StoredOperation {
    let response = Response { status: StatusCode::CREATED, headers: HeaderMap::new(), body };
    let expires_at = StoreTime::from_ms(SENT + 1_000 + 1_000_000);
    let state = State::Completed { expires_at, settled_by, response: Arc::new(response) };
    operation(state, SENT + 5_000)
}

fn body() -> Kept {
    Kept::Bytes { body: Bytes::from_static(b"{}"), trailers: None }
}

fn unknown(now_ms: i64) -> StoredOperation {
    operation(State::Unknown { since: StoreTime::from_ms(SENT + 30_000) }, now_ms)
}

#[test]
fn a_completed_operation_says_when_and_what_retries_get() {
    assert_eq!(
        sentence(&completed(SettledBy::Owner, body())),
        "Executed once, at 2026-11-17 14:02:08 UTC, with the answer 201. Every retry gets this answer."
    );
    let not_kept = sentence(&completed(SettledBy::Owner, Kept::No(NotKept::TooLarge)));
    assert!(
        not_kept.ends_with("not kept (too large): a retry gets 410, never a second execution.")
    );
    assert!(
        sentence(&completed(SettledBy::Operator, body())).starts_with("Settled by an operator")
    );
    assert!(sentence(&completed(SettledBy::Reconcile, body())).contains("service was asked"));
    assert!(sentence(&completed(SettledBy::Policy, body())).contains("may have been executed"));
}

#[test]
fn an_unknown_operation_says_what_was_sent_and_what_to_check() {
    let unknown = unknown(SENT + 30_000 + 192_000);
    assert_eq!(
        sentence(&unknown),
        "Sent at 2026-11-17 14:02:07 UTC, and no complete answer came back. It may have been executed, at most once. It has been waiting for an operator for 3 m 12 s."
    );
    let mut again = unknown.clone();
    again.record.attempt = 2;
    assert!(
        !sentence(&again).contains("at most once"),
        "a second attempt may be a second execution"
    );
    let checks = checks(&unknown);
    assert!(checks[0].contains("POST /charges") && checks[0].contains("\"order-1\""), "{checks:?}");
    assert!(checks.iter().any(|check| check.contains("2026-11-17 14:03:37 UTC")), "{checks:?}");
    let failed = checks.iter().find(|check| check.contains("settle it as failed")).unwrap();
    assert!(failed.contains("502 idempotency_operation_failed"), "{failed}");
}

#[test]
fn a_running_operation_says_when_its_lease_ends() {
    let running = |now_ms| {
        sentence(&operation(
            State::Running { lease_until: StoreTime::from_ms(SENT + 30_000) },
            now_ms,
        ))
    };
    assert_eq!(
        running(SENT + 10_000),
        "Running since 2026-11-17 14:02:07 UTC, attempt 1. The lease ends in 20 s unless the gateway renews it."
    );
    assert!(running(SENT + 40_000).contains("The lease ended 10 s ago and was not renewed"));
}

#[test]
fn each_state_allows_what_the_library_allows() {
    let allowed = |operation: &StoredOperation| {
        let actions = actions(operation);
        ["settle", "release", "forget"].map(|name| {
            let is_allowed = actions[name]["allowed"].as_bool().unwrap();
            assert_eq!(actions[name]["why_not"].is_null(), is_allowed, "{name}: {actions}");
            assert!(actions[name]["promise"].as_str().is_some_and(|promise| !promise.is_empty()));
            is_allowed
        })
    };
    assert_eq!(allowed(&unknown(SENT + 90_000)), [true, true, false]);
    assert_eq!(allowed(&unknown(SENT + 89_999)), [true, false, false]);
    assert_eq!(allowed(&completed(SettledBy::Owner, body())), [false, false, true]);
    let released = State::Released { expires_at: StoreTime::from_ms(SENT + 1_000) };
    assert_eq!(allowed(&operation(released, SENT)), [false, false, false]);
    let running = State::Running { lease_until: StoreTime::from_ms(SENT) };
    assert_eq!(allowed(&operation(running, SENT)), [false, false, false]);
}

#[test]
fn an_early_release_can_be_forced_and_says_from_when_on_it_need_not() {
    let release = &actions(&unknown(SENT + 31_000))["release"];
    assert_eq!((&release["force"], &release["allowed"]), (&true.into(), &false.into()));
    assert_eq!(release["allowed_at"], "2026-11-17T14:03:37.000Z");
    assert!(release["why_not"].as_str().unwrap().contains("2026-11-17 14:03:37 UTC"));
}
