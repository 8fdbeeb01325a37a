//! The fault harness: real gateways and stores, clients that retry, and everything that can be done to them. The checker
//! of `crates/proof` judges what was seen.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod clients;
#[path = "../endurance/gateway.rs"]
#[expect(dead_code, reason = "shared with the tests of endurance, which use all of it")]
mod gateway;
mod lab;
mod nemesis;
mod operation;
mod service;
mod stores;

mod heavy_control;
mod heavy_failover;
mod heavy_faults;
mod soak;

use std::time::Duration;

/// Nothing that a test waits for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(came) => came,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    within(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
