//! The primary of a fleet dies, and its synchronous standby takes over.

use proof::tier::tiered;
use servers::Patroni;

use crate::clients::Load;
use crate::lab::Lab;
use crate::stores::Kind;

const CLIENTS: usize = 32;
const FAILOVERS: usize = 10;
/// Fewer, because Patroni waits for 20 seconds before it gives a primary up.
const FAILOVERS_BY_PATRONI: usize = 3;

// R87, R100; threats C2, C3
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fleet_whose_postgres_fails_over_to_its_synchronous_standby_loses_nothing() {
    let mut lab = Lab::start(Kind::Replicated).await;
    let load = Load::start(&lab.clients, CLIENTS);
    for _ in 0..tiered(FAILOVERS) {
        lab.fail_over().await;
    }
    load.end().await;
    let needs =
        [("fault failover", tiered(FAILOVERS)), ("replayed", 20), ("faulted operations", 5)];
    lab.judge(&needs.map(|(what, least)| (what.to_owned(), least))).await;
}

// R87, R100; threats C2, C3
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fleet_whose_postgres_is_failed_over_by_patroni_loses_nothing() {
    if !Patroni::is_installed() {
        println!("SKIPPED: Patroni or etcd is not installed; scripts/test unpacks them");
        return;
    }
    let mut lab = Lab::start(Kind::Patroni).await;
    let load = Load::start(&lab.clients, CLIENTS);
    for _ in 0..tiered(FAILOVERS_BY_PATRONI) {
        lab.fail_over_by_patroni().await;
    }
    load.end().await;
    let failovers = tiered(FAILOVERS_BY_PATRONI);
    let needs =
        [("fault failover by patroni", failovers), ("replayed", 20), ("faulted operations", 5)];
    lab.judge(&needs.map(|(what, least)| (what.to_owned(), least))).await;
}
