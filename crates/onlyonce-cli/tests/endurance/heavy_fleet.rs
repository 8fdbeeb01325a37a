//! Two gateways on one Postgres, while its parts fail: nothing twice, nothing acknowledged lost.

use std::net::SocketAddr;
use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use proof::client::{Answer, post};
use proof::cutter::Cutter;
use proof::tier::tiered;
use servers::Postgres;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use crate::fleet::{Fleet, Load};
use crate::gateway::Gateway;
use crate::history::Shared;
use crate::upstream::GATED;
use crate::{BODY, until, within};

/// How many operations a fault must find under way.
const IN_FLIGHT_MIN: usize = 5;
/// A lease that a paused gateway outsleeps in the time of a test.
const SHORT_LEASE: &str = "lease = \"2s\"";
/// What lapses has done so long before: the lease ends, and the reaper sees nothing for another one.
const LAPSE_WAIT_MAX: Duration = Duration::from_secs(15);

pub(crate) fn lively() -> Shared {
    let shared = Shared::default();
    shared.history().owners_live = true;
    shared
}

/// A random moment, and then one at which enough is under way.
pub(crate) async fn moment(shared: &Shared) -> usize {
    sleep(Duration::from_millis(fastrand::u64(50..300))).await;
    until("load", || shared.history().in_flight() >= IN_FLIGHT_MIN).await;
    shared.history().in_flight()
}

// threats C2, C11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_killed_and_recovers_loses_nothing() {
    let mut fleet = Fleet::start("").await;
    let shared = lively();
    let load = Load::start(&shared, &fleet.addresses());
    let mut under_way = 0;
    for _ in 0..tiered(10) {
        under_way += moment(&shared).await;
        shared.history().fault_begins();
        block_in_place(|| {
            fleet.postgres.kill();
            fleet.postgres.start_again();
        });
        works_again(&shared).await;
        shared.history().fault_ends();
    }
    load.end().await;
    fleet.judge(&shared, &[("replays", 200), ("refusals of a store that is away", 1)]).await;
    println!("{under_way} operations under way at {} kills", tiered(10));
}

/// Until operations complete again.
pub(crate) async fn works_again(shared: &Shared) {
    let before = shared.history().completed();
    until("operations to complete again", || shared.history().completed() > before + 20).await;
}

// threat C1; FAIL-29
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_is_cut_at_the_reply_to_a_commit_changes_nothing() {
    let postgres = block_in_place(Postgres::start);
    let database = block_in_place(|| postgres.database());
    let cutter = Cutter::start(SocketAddr::from(([127, 0, 0, 1], postgres.port()))).await.unwrap();
    let line = database.replace(&postgres.port().to_string(), &cutter.address.port().to_string());
    let fleet = Fleet::on(postgres, &format!("store = \"{line}\""), "").await;
    let shared = lively();
    let load = Load::start(&shared, &fleet.addresses());
    for cut in 1..=tiered(200) {
        moment(&shared).await;
        shared.history().fault_begins();
        cutter.cut();
        until("a cut", || cutter.made() >= cut).await;
        works_again(&shared).await;
        shared.history().fault_ends();
    }
    load.end().await;
    fleet.judge(&shared, &[("replays", 200)]).await;
    println!("{} lines cut at the reply to a commit", cutter.made());
}

// threats A9, B1 to B4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_sleeps_through_its_lease_changes_nothing_when_it_wakes() {
    let fleet = Fleet::start(SHORT_LEASE).await;
    let shared = lively();
    let load = Load::start(&shared, &fleet.addresses());
    let (sleeper, other) = (&fleet.gateways[0], &fleet.gateways[1]);
    for _ in 0..tiered(20) {
        within("the sleeper's operations to lapse", async {
            while !lapses(&shared, sleeper, other).await {}
        })
        .await;
    }
    let reaped = other.metric("onlyonce_reaped_total").await;
    load.end().await;
    fleet.judge(&shared, &[("replays", 200)]).await;
    println!("{reaped} operations lapsed while their gateway slept");
    assert!(reaped >= tiered(20), "only {reaped} lapsed");
}

/// Whether anything lapsed while the gateway slept. Those under way at this moment may all be the other one's.
async fn lapses(shared: &Shared, sleeper: &Gateway, other: &Gateway) -> bool {
    let before = other.metric("onlyonce_reaped_total").await;
    moment(shared).await;
    shared.history().fault_begins();
    sleeper.pause();
    let lapsed = async {
        while other.metric("onlyonce_reaped_total").await == before {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let has_lapsed = timeout(LAPSE_WAIT_MAX, lapsed).await.is_ok();
    sleeper.resume();
    works_again(shared).await;
    shared.history().fault_ends();
    has_lapsed
}

// R58, R60: woken by a notification; the poll, which is the safety net, would take a tenth of a second and more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_at_the_other_gateway_hears_of_the_answer_before_it_would_look_again() {
    let fleet = Fleet::start("in_flight = \"wait\"\nwait = \"30s\"").await;
    let [one, two] = [fleet.gateways[0].address, fleet.gateways[1].address];
    let mut late_ms = Vec::new();
    for n in 0..tiered(200) {
        let key = format!("waited-for-{n}");
        fleet.upstream.close_gate();
        let first = tokio::spawn(timed_post(one, key.clone()));
        until("the execution", || fleet.upstream.executions(&key).len() == 1).await;
        let waiter = tokio::spawn(timed_post(two, key.clone()));
        within("the waiter", async {
            while fleet.gateways[1].metric("onlyonce_waiting ").await == 0 {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        fleet.upstream.open_gate();
        let ((first, first_at), (replay, replay_at)) =
            (first.await.unwrap(), waiter.await.unwrap());
        assert!(replay.is_replay() && replay.body == first.body, "{replay:?}");
        late_ms.push(replay_at.saturating_sub(first_at).as_secs_f64() * 1e3);
        assert_eq!(fleet.upstream.executions(&key).len(), 1);
    }
    late_ms.sort_by(f64::total_cmp);
    let at = |part: usize| late_ms[(late_ms.len() - 1) * part / 100];
    println!(
        "a waiter at the other gateway hears {:.1} ms later (p50), {:.1} ms (p99)",
        at(50),
        at(99)
    );
    // On any machine half of them hear of it well before they would have looked again.
    assert!(at(50) < 100.0, "{late_ms:?}");
}

async fn timed_post(gateway: SocketAddr, key: String) -> (Answer, Duration) {
    let answer = post(gateway, GATED, &key, BODY).await.unwrap();
    (answer, SystemClock.boot())
}
