//! Connections that wait for their next request.

use std::time::Duration;

use tokio::time::sleep;

use super::peer::{Habit, PATIENT, Peer};
use crate::client::{Ask, Connection};
use crate::profile::{D, Profile, Set};
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, on_gateway};

on_gateway! {
    a_guarded_request_takes_no_connection_that_was_idle_for_a_second,
    a_request_without_a_key_takes_no_connection_that_was_idle_for_a_second,
    the_keep_alive_timeout_that_the_upstream_tells_is_honoured,
    a_connection_that_was_just_used_is_used_again,
    a_safe_request_may_use_an_older_connection,
    upstream_idle_says_how_long_a_connection_may_have_been_idle,
}

async fn before(peer: &Peer, profile: Profile<'_>) -> Subject {
    let url = format!("http://{}", peer.address);
    Kind::Gateway.start_at(&url, Upstream::closed().await, profile).await
}

/// Sends a request with a key of its own. One connection of the client is one thread of the gateway, which
/// has its own connections to the upstream.
async fn post(client: &mut Connection) -> u16 {
    let ask = Ask::post(B1).key(format!("{:032x}", fastrand::u128(..)));
    client.send(&ask).await.unwrap().status
}

// threat K7
async fn a_guarded_request_takes_no_connection_that_was_idle_for_a_second(_: Kind) {
    let peer = Peer::start(Habit { idle_max: Duration::from_millis(1050), line: "" }).await;
    let t = before(&peer, D).await;
    let mut client = t.connect().await;
    for n in 1..=4 {
        assert_eq!((post(&mut client).await, peer.executions()), (201, n));
        sleep(Duration::from_millis(1100)).await;
    }
    assert_eq!(peer.connections(), 4);
}

async fn a_request_without_a_key_takes_no_connection_that_was_idle_for_a_second(_: Kind) {
    let peer = Peer::start(Habit { idle_max: Duration::from_millis(1050), line: "" }).await;
    let t = before(&peer, D).await;
    let mut client = t.connect().await;
    for _ in 0..2 {
        client.send(&Ask::post(B1)).await.unwrap().fresh(201);
        sleep(Duration::from_millis(1100)).await;
    }
    assert_eq!((peer.connections(), peer.executions()), (2, 2));
}

async fn the_keep_alive_timeout_that_the_upstream_tells_is_honoured(_: Kind) {
    let habit =
        Habit { idle_max: Duration::from_millis(600), line: "Keep-Alive: max=100, timeout=1\r\n" };
    let peer = Peer::start(habit).await;
    let t = before(&peer, D).await;
    let mut client = t.connect().await;
    for n in 1..=4 {
        assert_eq!((post(&mut client).await, peer.executions()), (201, n));
        sleep(Duration::from_millis(650)).await;
    }
    assert_eq!(peer.connections(), 4);
}

async fn a_connection_that_was_just_used_is_used_again(_: Kind) {
    let peer = Peer::start(PATIENT).await;
    let t = before(&peer, D).await;
    let mut client = t.connect().await;
    for _ in 0..20 {
        assert_eq!(post(&mut client).await, 201);
    }
    assert_eq!((peer.connections(), peer.executions()), (1, 20));
}

async fn a_safe_request_may_use_an_older_connection(_: Kind) {
    let peer = Peer::start(PATIENT).await;
    let t = before(&peer, D).await;
    let mut client = t.connect().await;
    assert_eq!(post(&mut client).await, 201);
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(client.send(&Ask::bare("GET", "/t")).await.unwrap().status, 201);
    assert_eq!(peer.connections(), 1);
}

async fn upstream_idle_says_how_long_a_connection_may_have_been_idle(_: Kind) {
    for (upstream_idle_ms, connections) in [(0, 3), (100, 3), (20_000, 1)] {
        let peer = Peer::start(PATIENT).await;
        let t = before(&peer, &[Set::UpstreamIdleMs(upstream_idle_ms)]).await;
        let mut client = t.connect().await;
        for _ in 0..3 {
            assert_eq!(post(&mut client).await, 201);
            sleep(Duration::from_millis(150)).await;
        }
        assert_eq!(peer.connections(), connections, "{upstream_idle_ms} ms");
    }
}
