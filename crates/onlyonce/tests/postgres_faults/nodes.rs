//! Several nodes on one database.

use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::policy::Policy;
use onlyonce::scope::Principal;
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::{Draft, Lease, Store, Watch};
use onlyonce::{Once, Operation, Outcome};
use servers::Postgres;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::lab::{completed, draft, is_full, lock, open, open_with, session, settled, until, won};

// R48, threat B12
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_operation_is_claimed_by_one_of_many_nodes() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let nodes = [open(&url).await, open(&url).await, open(&url).await];
    for number in 0..if is_full() { 10_000 } else { 150 } {
        let mut racers = JoinSet::new();
        for racer in 0..12 {
            let store = nodes[racer % nodes.len()].clone();
            racers.spawn(async move { store.claim(draft(number)).await.expect("an answer") });
        }
        let seen = racers.join_all().await;
        assert_eq!(seen.iter().filter(|seen| seen.mine).count(), 1);
        let winner = &seen[0].record;
        assert!(seen.iter().all(|seen| seen.record == *winner), "all see the winner");
    }
}

// R86
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_another_node_is_woken() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let (ours, theirs) = (open(&url).await, open(&url).await);
    acquainted(&ours, &theirs).await;
    let mut took = Vec::new();
    for number in 0..200 {
        let draft = draft(1_000 + number);
        won(&ours, &draft).await;
        let changed = theirs.changed(draft.id);
        let before = SystemClock.boot();
        settled(&ours, &draft).await;
        timeout(Duration::from_secs(5), changed).await.expect("it is woken, not only by polling");
        took.push(SystemClock.boot() - before);
    }
    took.sort_unstable();
    println!(
        "woken on another node after {:?} (median), {:?} (p99), commit included",
        took[100], took[197]
    );
    if is_full() {
        assert!(took[197] <= Duration::from_millis(50), "p99 is {:?}", took[197]);
    }
}

/// Each node tells the others only once it has heard of one.
async fn acquainted(ours: &PostgresStore, theirs: &PostgresStore) {
    let met = async {
        for number in 0.. {
            let draft = draft(1_000_000 + number);
            won(ours, &draft).await;
            let changed = theirs.changed(draft.id);
            settled(ours, &draft).await;
            if timeout(Duration::from_millis(100), changed).await.is_ok() {
                return;
            }
        }
    };
    timeout(Duration::from_secs(10), met).await.expect("they hear of each other");
}

/// Whoever waits while nothing can be heard is woken when it can be again, and looks.
#[tokio::test]
async fn after_a_gap_everyone_is_woken() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let other = session(&url).await;
    let listens =
        "FROM pg_stat_activity WHERE application_name = 'onlyonce' AND query LIKE '%pg_notify%'";
    until(&other, &format!("SELECT EXISTS (SELECT {listens})")).await;
    let changed = store.changed(draft(1).id);
    other.batch_execute(&format!("SELECT pg_terminate_backend(pid) {listens}")).await.unwrap();
    timeout(Duration::from_secs(5), changed).await.expect("it is woken");
}

/// Two owners are dead, and an operator holds the row of the first: the second is reaped nevertheless.
// threat C7
#[tokio::test]
async fn a_row_that_someone_else_locks_keeps_no_other_from_being_reaped() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let lease = Duration::from_millis(300);
    let dead = [1, 2].map(|number| Draft { lease: Lease::new(lease), ..draft(number) });
    for draft in &dead {
        won(&store, draft).await;
    }
    let (holds, watcher) = (session(&url).await, session(&url).await);
    lock(&holds, &dead[0]).await;
    let once = Once::new(store);
    let policy = Policy::default().with_route("reaps soon").with_lease(lease);
    let operation = Operation::new("reaps soon", Principal::of("queue", b"any"), "any").unwrap();
    let ran = once.run(operation.with_policy(policy), |_| async { Ok(()) }).await;
    assert!(matches!(ran, Ok(Outcome::Fresh(()))), "{ran:?}");
    let second = format!("SELECT state = 2 FROM onlyonce.record WHERE id = '{}'", dead[1].id);
    until(&watcher, &second).await;
}

#[tokio::test]
async fn stores_in_two_schemas_know_nothing_of_each_other() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let one = open(&url).await;
    let two = open_with(&url, PostgresOptions::new().with_schema("Other \"one\"; --")).await;
    let three = open(&format!("{url}?schema=third")).await;
    for store in [&one, &two, &three] {
        completed(store, &Draft { token: draft(1).token, ..draft(1) }).await;
    }
    let schemas = "SELECT count(*) FROM pg_tables WHERE tablename = 'record'";
    assert_eq!(postgres.sql(&url, schemas), "3");
}

/// Four that start on nothing, and all of them find the same.
// threat C13
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_that_start_at_once_make_one_schema() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let mut nodes = JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        nodes.spawn(async move { open(&url).await });
    }
    let nodes = nodes.join_all().await;
    completed(&nodes[0], &draft(1)).await;
    for node in &nodes {
        assert!(node.load(draft(1).id).await.unwrap().record.is_some());
    }
    assert_eq!(postgres.sql(&url, "SELECT count(*) FROM onlyonce.meta"), "1");
}
