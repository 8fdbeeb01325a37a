//! What is running is listed, whoever asks, by the index that has only that.

use onlyonce::record::{StateKind, StateSet};
use onlyonce::scope::OperationId;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::{Maintain, Scan, Store};
use servers::Postgres;

use crate::clock::Clocked;
use crate::lab::{completed, draft, open, session, settled, until_gone, won};

/// All pages of so many.
async fn running(store: &PostgresStore, limit: usize) -> Vec<OperationId> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let states = StateSet::of(&[StateKind::Running]);
        let page = store.scan(Scan { states, after, limit }).await.unwrap();
        found.extend(page.records.into_iter().map(|(id, _)| id));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
    panic!("the pages have no end");
}

#[tokio::test]
async fn everything_that_runs_is_listed_once_in_the_order_of_ids() {
    let postgres = Postgres::start();
    let store = open(&postgres.database()).await;
    for number in 1..=21 {
        won(&store, &draft(number)).await;
        completed(&store, &draft(100 + number)).await;
    }
    let all: Vec<_> = (1..=21).map(|number| draft(number).id).collect();
    for limit in [1, 2, 7, 21, 500] {
        assert_eq!(running(&store, limit).await, all);
    }
}

/// However much was completed since.
#[tokio::test]
async fn a_record_that_a_dead_owner_left_stays_listed_for_those_who_start_later_too() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let left = draft(1);
    won(&store, &left).await;
    for number in 2..100 {
        completed(&store, &draft(number)).await;
    }
    store.close().await;
    until_gone(&session(&url).await).await;
    let read =
        "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'record_running'";
    let before: i64 = postgres.sql(&url, read).parse().unwrap();
    let later = open(&url).await;
    assert_eq!(running(&later, 500).await, [left.id]);
    settled(&later, &left).await;
    assert!(running(&later, 500).await.is_empty());
    later.close().await;
    until_gone(&session(&url).await).await;
    let after: i64 = postgres.sql(&url, read).parse().unwrap();
    assert!(
        after - before < 110,
        "only what ran is read, and what was cleaned up: {}",
        after - before
    );
}

/// Listings do not go by the clock.
// threat B7
#[tokio::test]
async fn what_is_begun_after_the_clock_was_set_back_is_listed_on_every_node() {
    let clocked = Clocked::start();
    clocked.shift("1 day");
    let (store, other) = (clocked.open().await, clocked.open().await);
    completed(&store, &draft(1)).await;
    clocked.shift("0");
    won(&store, &draft(2)).await;
    let later = clocked.open().await;
    for node in [&store, &other, &later] {
        assert_eq!(running(node, 10).await, [draft(2).id]);
    }
}

/// A node of a later version left it. It is not ours to read.
#[tokio::test]
async fn a_running_record_of_another_format_is_left_for_those_who_know_it() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    won(&store, &draft(1)).await;
    won(&store, &draft(2)).await;
    postgres
        .sql(&url, &format!("UPDATE onlyonce.record SET format = 2 WHERE id = '{}'", draft(1).id));
    assert_eq!(running(&store, 1).await, [draft(2).id], "it stops no listing");
    assert!(store.load(draft(1).id).await.is_err(), "and is not absent");
}

const PAGES_MAX: usize = 200;
