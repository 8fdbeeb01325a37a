//! What the gateway endures: kills, hang-ups, crowds, stops, spoiled stores, and a fleet whose parts fail. The real binary, real sockets.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod caller;
mod fleet;
mod gateway;
mod history;
mod upstream;

mod clock_jump;
mod closed_pipe;
mod forgetting;
mod hang_up;
mod heavy_crowd;
mod heavy_disk;
mod heavy_duplicates;
#[cfg(feature = "dynamodb")]
mod heavy_dynamodb;
mod heavy_fleet;
mod heavy_kill;
mod heavy_migrate;
mod heavy_rolling;
mod heavy_stop;
mod ready;
mod refused_store;
mod reload;
mod secured;
mod secured_upstream;
mod stop;
mod tls;

use std::time::Duration;

const BODY: &str = "{\"amount\":1}";

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
