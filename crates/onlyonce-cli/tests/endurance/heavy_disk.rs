//! Two gateways on one Postgres whose disk fails: nothing twice, nothing acknowledged lost.

use proof::tier::tiered;
use servers::{Disk, Postgres};
use tokio::task::block_in_place;

use crate::fleet::{Fleet, Load};
use crate::heavy_fleet::{lively, moment, works_again};
use crate::until;

// threat C14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_what_is_new_and_loses_nothing() {
    let fleet = spoilable().await;
    let shared = lively();
    let load = Load::start(&shared, &fleet.addresses());
    let mut refused = 0;
    for _ in 0..tiered(10) {
        moment(&shared).await;
        shared.history().fault_begins();
        let before = shared.history().store_refusals;
        fleet.postgres.set_disk(Disk::Full);
        until("a claim to be refused", || shared.history().store_refusals > before).await;
        fleet.postgres.set_disk(Disk::Sound);
        works_again(&shared).await;
        shared.history().fault_ends();
        refused += 1;
    }
    load.end().await;
    fleet.judge(&shared, &[("replays", 200), ("refusals of a store that is away", 10)]).await;
    let log = fleet.postgres.log();
    let full = log.matches("No space left on device").count();
    println!("a full disk {refused} times, {full} statements failed by it");
    assert!(full >= refused, "{full}");
    assert!(!log.contains("PANIC"), "the server itself went on");
}

// threat C14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_does_not_sync_loses_nothing_that_was_acknowledged() {
    let fleet = spoilable().await;
    let shared = lively();
    let load = Load::start(&shared, &fleet.addresses());
    let mut under_way = 0;
    for panics in 1..=tiered(10) {
        under_way += moment(&shared).await;
        shared.history().fault_begins();
        fleet.postgres.set_disk(Disk::NoSync);
        let panicked = || fleet.postgres.log().matches("PANIC").count() >= panics;
        until("the server to panic", panicked).await;
        fleet.postgres.set_disk(Disk::Sound);
        works_again(&shared).await;
        shared.history().fault_ends();
    }
    load.end().await;
    fleet.judge(&shared, &[("replays", 200), ("refusals of a store that is away", 1)]).await;
    println!("{under_way} operations under way at {} failed syncs", tiered(10));
}

async fn spoilable() -> Fleet {
    let postgres = block_in_place(Postgres::start_with_disk);
    let database = block_in_place(|| postgres.database());
    Fleet::on(postgres, &format!("store = \"{database}\""), "").await
}
