//! The black-box cases, each named by its id: what anyone can observe from outside, of the gateway (the
//! real binary on real sockets) and of the library in an axum server.
#![expect(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

mod agents;
mod answer;
mod client;
mod gzip;
mod profile;
mod python;
mod reply;
mod subject;
mod upstream;
mod wire;

mod authorize;
mod callers;
mod concurrency;
mod connections;
mod cookies;
mod cors;
mod crash;
mod credentials;
mod deadlines;
mod early_data;
mod edges;
mod expiry;
mod failures;
mod fingerprint;
mod graphql;
mod hygiene;
mod jwt;
mod location;
mod paths;
mod prefix;
mod recoveries;
mod redact;
mod repeatable;
mod replay;
mod resets;
mod scope;
mod seal;
mod stores;
mod syntax;
mod tokens;
mod velocity;
mod webhooks;
mod well_known;
mod words;

use std::time::Duration;

/// `K1` and `K2`, and the bodies, of the notation.
const K1: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";
const K2: &str = "2f1c7f0e-9f0b-4a41-8d3b-0a5a3f5d7c11";
const B1: &str = r#"{"amount":7998,"currency":"usd"}"#;
const B2: &str = r#"{"amount":9999,"currency":"usd"}"#;

/// Runs each case on both subjects: `<section>::gateway::<id>` and `<section>::library::<id>`.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod gateway {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(crate::subject::Kind::Gateway).await;
            })*
        }
        mod library {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(crate::subject::Kind::Library).await;
            })*
        }
    };
}
use on_both;

/// Runs each case on the gateway, which alone has what it needs.
macro_rules! on_gateway {
    ($($case:ident),* $(,)?) => {
        mod gateway_alone {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(crate::subject::Kind::Gateway).await;
            })*
        }
    };
}
use on_gateway;

/// Nothing that a case waits for takes longer, on whatever machine.
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

/// The tier's count: all of it, or about a tenth.
fn tiered(full: usize) -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { full } else { full.div_ceil(10) }
}
