//! The primary of a fleet dies, and its synchronous standby takes over.

use proof::tier::tiered;

use crate::clients::Load;
use crate::lab::Lab;
use crate::stores::Kind;

const CLIENTS: usize = 32;
const FAILOVERS: usize = 10;

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
