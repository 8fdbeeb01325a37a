//! Waiters of one key share their reads.

use std::time::Duration;

use onlyonce::policy::InFlight;
use onlyonce::scope::Principal;
use onlyonce::{Once, Operation, Outcome, Policy};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::emulator::open;
use crate::lab::Lab;

const WAITERS: usize = 100;

fn operation() -> Operation {
    let policy = Policy::default().with_in_flight(InFlight::Wait(Duration::from_secs(20)));
    Operation::new("ship", Principal::of("queue", b"orders"), "hot").unwrap().with_policy(policy)
}

/// The owner is on another node, so that nobody here is woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_costs_reads_by_the_node_and_not_by_the_waiter() {
    let Some(lab) = Lab::start("").await else { return };
    let owner = Once::new(lab.other_node().await);
    let here = Once::new(open(&lab.wire.url(), "").await);
    let (go, gate) = watch::channel(false);
    let (starts, started) = oneshot::channel();
    let owned = tokio::spawn(async move {
        let work = move |_| async move {
            starts.send(()).expect("the test waits for it");
            gate.clone().wait_for(|open| *open).await?;
            Ok(7)
        };
        owner.run(operation(), work).await
    });
    started.await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let here = here.clone();
        waiters.spawn(async move { here.run(operation(), |_| async { Ok(8) }).await });
        // They come one after the other, within a second.
        sleep(Duration::from_millis(8)).await;
    }
    lab.wire.forget();
    sleep(Duration::from_secs(3)).await;
    let reads = lab.wire.counts().calls.get("GetItem").copied().unwrap_or(0);
    println!("{reads} reads in 3 s for {WAITERS} waiters");
    go.send_replace(true);
    assert!(matches!(owned.await.unwrap(), Ok(Outcome::Fresh(7))));
    for waited in waiters.join_all().await {
        assert!(matches!(waited, Ok(Outcome::Replayed(7))), "{waited:?}");
    }
    assert!((1..=20).contains(&reads), "{reads} reads");
}
