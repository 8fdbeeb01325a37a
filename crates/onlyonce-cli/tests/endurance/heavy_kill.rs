//! `kill -9` of the gateway under load: nothing twice, nothing acknowledged lost, unknown only where it must.

use std::time::Duration;

use proof::tier::tiered;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::gateway::Gateway;
use crate::history::Shared;
use crate::until;
use crate::upstream::Upstream;

const CLIENTS: usize = 64;
const EXECUTING_MIN: usize = 5;

// R55, R58, R64, R80, R100, R103, R104; threats A1 to A8, A14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_execute_nothing_twice_and_lose_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let shared = Shared::default();
    let mut executing_at_kills = Vec::new();
    for _ in 0..tiered(50) {
        let mut gateway = Gateway::start(folder.path(), upstream.address).await;
        executing_at_kills.push(load_until_killed(&mut gateway, &upstream, &shared).await);
    }
    let gateway = Gateway::start(folder.path(), upstream.address).await;
    shared.finish(&[gateway.address]).await;
    shared.reread_everything(&[gateway.address]).await;
    let history = shared.history();
    history.judge(&upstream.all_executions());
    history.judge_counts(&[("unknown", 50), ("replays", 200), ("refusals in flight", 200)]);
    let (least, most) = (executing_at_kills.iter().min(), executing_at_kills.iter().max());
    let kills = executing_at_kills.len();
    println!("{kills} kills, {least:?} to {most:?} executing at each");
}

/// Clients send until the gateway is killed among them; how many operations were executing then.
async fn load_until_killed(gateway: &mut Gateway, upstream: &Upstream, shared: &Shared) -> usize {
    let (stop, stopped) = watch::channel(false);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(shared.clone().send_until(vec![gateway.address], stopped.clone()));
    }
    // A random moment, not a wait for anything.
    sleep(Duration::from_millis(fastrand::u64(50..600))).await;
    until("load", || upstream.executing() >= EXECUTING_MIN).await;
    let executing = upstream.executing();
    shared.history().fault_begins();
    gateway.kill().await;
    shared.history().fault_ends();
    stop.send_replace(true);
    clients.join_all().await;
    executing
}
