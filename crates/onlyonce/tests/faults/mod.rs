//! What the fault tests share: a service to guard, a clock to move, a store that misbehaves.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod app;
pub(crate) mod clock;
pub(crate) mod lab;
pub(crate) mod scripted;

use std::future::Future;
use std::time::Duration;

use onlyonce::record::{Record, StateKind, StateSet};
use onlyonce::scope::OperationId;
use onlyonce::store::{Maintain, Scan};

/// Asks again until `condition` holds. The bound is generous, because the machine may be busy; a
/// test that reaches it has failed.
pub(crate) async fn until<F>(what: &str, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let holds = async {
        while !condition().await {
            tokio::time::sleep(ASK_AGAIN).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, holds).await;
    assert!(in_time.is_ok(), "still waiting: {what}");
}

/// What `future` gives, which must be soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let in_time = tokio::time::timeout(PATIENCE, future).await;
    in_time.unwrap_or_else(|_| panic!("still waiting: {what}"))
}

/// Every record of `store`.
pub(crate) async fn records(store: &impl Maintain) -> Vec<(OperationId, Record)> {
    let states = StateSet::of(&StateKind::ALL);
    let all = Scan { states, after: None, limit: usize::MAX };
    store.scan(all).await.expect("the store answers").records
}

/// The only record of `store`; `None` if it is empty.
pub(crate) async fn record(store: &impl Maintain) -> Option<Record> {
    let mut records = records(store).await;
    assert!(records.len() <= 1, "one key, one record");
    records.pop().map(|(_, record)| record)
}

/// The state of the only record; `None` if there is no record.
pub(crate) async fn state(store: &impl Maintain) -> Option<StateKind> {
    record(store).await.map(|record| record.state.kind())
}

/// Waits until the only record is in `wanted`; `None` is absent.
pub(crate) async fn until_state(store: &impl Maintain, wanted: Option<StateKind>) {
    let what = format!("the record to be {wanted:?}");
    until(&what, || async { state(store).await == wanted }).await;
}

const ASK_AGAIN: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(30);
