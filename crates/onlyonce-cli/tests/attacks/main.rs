//! What honest clients notice of hostile ones: little, and the gateway's memory keeps its bound. The real
//! binary, real sockets, and a plain proxy beside it that shows what the machine itself costs.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod frames;
#[path = "../endurance/gateway.rs"]
#[expect(dead_code, reason = "other tests ask more of a gateway")]
mod gateway;
mod honest;
mod lab;
mod plain;
mod smuggling;
mod upstream;

mod heavy_body;
mod heavy_crowd;
mod heavy_head;
mod heavy_idle;
mod heavy_reader;
mod heavy_resets;

use std::time::Duration;

/// Nothing that a test waits for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(90);

async fn within<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(came) => came,
        Err(_) => panic!("waited in vain for {what}"),
    }
}
