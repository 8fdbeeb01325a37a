//! The time before the first byte of a request.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::peer::{Full, silent};
use crate::client::Ask;
use crate::profile::{D, Profile, Set};
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, K1, on_gateway};

on_gateway! {
    a_connect_that_hangs_is_not_sent,
    a_connect_over_http2_that_hangs_is_not_sent,
    a_tls_handshake_that_hangs_is_not_sent,
    requests_share_one_slow_connect,
    requests_share_one_slow_tls_handshake,
    a_refused_connection_of_a_request_without_a_key_says_that_nothing_was_executed,
}

async fn before(scheme: &str, address: SocketAddr, profile: Profile<'_>) -> Subject {
    let url = format!("{scheme}://{address}");
    Kind::Gateway.start_at(&url, Upstream::closed().await, profile).await
}

/// Shorter than any bound of a connect.
const SHORT: Profile<'static> = &[Set::UpstreamTimeoutMs(800)];

async fn a_connect_that_hangs_is_not_sent(_: Kind) {
    let upstream = Full::start().await;
    let t = before("http", upstream.address, SHORT).await;
    for _ in 0..2 {
        t.post(K1, B1).await.problem(503, "upstream_unreachable");
    }
    let upstream = upstream.open();
    let first = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&first);
    assert_eq!(upstream.executions(), 1);
}

async fn a_connect_over_http2_that_hangs_is_not_sent(_: Kind) {
    let upstream = Full::start().await;
    let t = before("h2c", upstream.address, SHORT).await;
    for _ in 0..2 {
        t.post(K1, B1).await.problem(503, "upstream_unreachable");
    }
}

async fn a_tls_handshake_that_hangs_is_not_sent(_: Kind) {
    let (address, _upstream) = silent().await;
    let t = before("https", address, SHORT).await;
    for _ in 0..2 {
        t.post(K1, B1).await.problem(503, "upstream_unreachable");
    }
}

/// All of them are answered when the one connect has failed, and not one after the other.
async fn are_answered_together(t: &Subject) {
    let began = Instant::now();
    let keys: Vec<_> = (0..8).map(|n| format!("key-{n}")).collect();
    for answer in join_all(keys.iter().map(|key| t.post(key, B1))).await {
        answer.problem(503, "upstream_unreachable");
    }
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}

async fn requests_share_one_slow_connect(_: Kind) {
    let upstream = Full::start().await;
    are_answered_together(&before("h2c", upstream.address, D).await).await;
}

async fn requests_share_one_slow_tls_handshake(_: Kind) {
    let (address, _upstream) = silent().await;
    are_answered_together(&before("https", address, D).await).await;
}

async fn a_refused_connection_of_a_request_without_a_key_says_that_nothing_was_executed(_: Kind) {
    let upstream = Upstream::closed().await;
    let t = before("http", upstream.address, D).await;
    for ask in [Ask::post(B1), Ask::bare("GET", "/t")] {
        let answer = t.send(&ask).await;
        let problem = answer.problem(503, "upstream_unreachable");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("it was not executed"), "{detail}");
        assert!(!detail.contains("with the same key"), "it has none: {detail}");
        assert!(answer.retry_after_s() >= 1);
    }
}
