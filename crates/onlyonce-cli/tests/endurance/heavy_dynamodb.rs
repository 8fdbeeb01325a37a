//! Two gateways on one DynamoDB, while it is killed, cut off, throttled and forgets who we are: nothing twice, nothing
//! acknowledged lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proof::tier::tiered;
use servers::{DynamoDb, DynamoWire, WireFault};
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::fleet::Load;
use crate::gateway::Gateway;
use crate::heavy_duplicates::Callers;
use crate::heavy_fleet::{lively, moment, works_again};
use crate::history::Shared;
use crate::until;
use crate::upstream::Upstream;

struct Fleet {
    gateways: Vec<Gateway>,
    upstream: Upstream,
    wire: DynamoWire,
    server: DynamoDb,
    _folders: Vec<TempDir>,
}

impl Fleet {
    /// `None` where the emulator is not installed.
    async fn start() -> Option<Self> {
        let server = block_in_place(DynamoDb::start)?;
        let wire = DynamoWire::before(&server, |_| WireFault::None);
        let store = format!("dynamodb:keys?endpoint={}", wire.url());
        make_table(&store);
        let upstream = Upstream::start().await;
        let (mut gateways, mut folders) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let folder = tempfile::tempdir().unwrap();
            let top = format!("store = \"{store}\"");
            gateways.push(Gateway::with_top(folder.path(), upstream.address, &top, "").await);
            folders.push(folder);
        }
        Some(Self { gateways, upstream, wire, server, _folders: folders })
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(|gateway| gateway.address).collect()
    }

    /// Brings everything to an end, and judges it.
    async fn judge(&self, shared: &Shared, least: &[(&str, usize)]) {
        let gateways = self.addresses();
        shared.finish(&gateways).await;
        shared.history().reopen_unknown();
        shared.finish(&gateways).await;
        shared.reread_everything(&gateways).await;
        let history = shared.history();
        history.judge(&self.upstream.all_executions());
        history.judge_counts(least);
    }
}

fn make_table(store: &str) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(["migrate", "--to", store]);
    command.envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]);
    let made = block_in_place(|| command.output()).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

// R49, R55; CON-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_across_two_gateways_on_dynamodb_execute_once_and_are_answered_alike() {
    let Some(fleet) = Fleet::start().await else { return };
    let callers = Callers::connect(&fleet.addresses()).await;
    for n in 0..tiered(200) {
        callers.all_send(&fleet.upstream, &format!("across-{n}")).await;
    }
    callers.report(tiered(200));
}

// threats C2, C11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dynamodb_that_is_killed_and_recovers_loses_nothing() {
    let Some(mut fleet) = Fleet::start().await else { return };
    let shared = lively();
    let load = Load::start(&shared, &fleet.addresses());
    let mut under_way = 0;
    for _ in 0..tiered(10) {
        under_way += moment(&shared).await;
        shared.history().fault_begins();
        block_in_place(|| {
            fleet.server.kill();
            fleet.server.start_again();
        });
        works_again(&shared).await;
        shared.history().fault_ends();
    }
    load.end().await;
    fleet.judge(&shared, &[("replays", 100)]).await;
    println!("{under_way} operations under way at {} kills", tiered(10));
}

// threat C1; FAIL-29
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_dynamodb_that_are_cut_change_nothing() {
    let Some(fleet) = Fleet::start().await else { return };
    let shared = lively();
    let load = Load::start(&shared, &fleet.addresses());
    shared.history().fault_begins();
    let cuts = Arc::<AtomicUsize>::default();
    for cut in 1..=tiered(100) {
        moment(&shared).await;
        let (made, mut is_due) = (cuts.clone(), true);
        fleet.wire.change(move |action| {
            let is_write = ["PutItem", "UpdateItem", "DeleteItem"].contains(&action);
            match is_write && std::mem::take(&mut is_due) {
                true => {
                    made.fetch_add(1, Ordering::SeqCst);
                    if cut.is_multiple_of(2) {
                        WireFault::ReplyLost
                    } else {
                        WireFault::FailedAfter
                    }
                }
                false => WireFault::None,
            }
        });
        until("a cut", || cuts.load(Ordering::SeqCst) >= cut).await;
    }
    works_again(&shared).await;
    shared.history().fault_ends();
    load.end().await;
    fleet.judge(&shared, &[("replays", 100)]).await;
    println!("{} replies to writes cut", cuts.load(Ordering::SeqCst));
}

/// Throttled calls were not done, so that nothing becomes unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_calls_and_expired_credentials_change_nothing() {
    let Some(fleet) = Fleet::start().await else { return };
    let shared = lively();
    let load = Load::start(&shared, &fleet.addresses());
    shared.history().fault_begins();
    let mut number = 0_usize;
    fleet.wire.change(move |_| {
        number += 1;
        if number.is_multiple_of(3) { WireFault::Throttled } else { WireFault::None }
    });
    let enough = tiered(3_000);
    until("throttled calls", || fleet.wire.counts().faults >= enough).await;
    let throttled = fleet.wire.counts().faults;
    works_again(&shared).await;
    let before = fleet.wire.counts().faults;
    moment(&shared).await;
    fleet.wire.change(|_| WireFault::Expired);
    until("refused calls", || fleet.wire.counts().faults >= before + 50).await;
    let expired = fleet.wire.counts().faults - before;
    fleet.wire.change(|_| WireFault::None);
    works_again(&shared).await;
    shared.history().fault_ends();
    load.end().await;
    fleet.judge(&shared, &[("replays", 100), ("refusals of a store that is away", 10)]).await;
    println!("{throttled} calls throttled, {expired} refused for their credentials");
}
