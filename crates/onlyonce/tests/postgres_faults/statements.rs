//! What calls cost the server.

use onlyonce::record::{StateKind, StateSet};
use onlyonce::store::{Maintain, Scan, Store};
use servers::Postgres;

use crate::lab::{completed, draft, open, won};

/// Statements of ours that the server has run since it was asked to count.
fn calls(postgres: &Postgres, url: &str, like: &str) -> i64 {
    let sql = format!(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%{like}%'"
    );
    postgres.sql(url, &sql).parse().unwrap()
}

/// A replay takes no transaction id, so that it waits for no disk.
#[tokio::test]
async fn a_replay_costs_no_commit() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &draft(1)).await;
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
    let before: u64 = postgres.sql(&url, next).parse().unwrap();
    for _ in 0..200 {
        assert!(!store.claim(draft(1)).await.unwrap().mine);
        store.load(draft(1).id).await.unwrap();
    }
    let after: u64 = postgres.sql(&url, next).parse().unwrap();
    assert!(after - before <= 3, "only the beat of every five seconds: {}", after - before);
}

// threat L6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_cost_few_statements() {
    let postgres = Postgres::start();
    let url = postgres.database();
    postgres.sql(&url, "CREATE EXTENSION pg_stat_statements");
    let store = open(&url).await;
    completed(&store, &draft(1)).await;
    let loads = (0..4_000).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.load(draft(1).id).await.unwrap() })
    });
    let loads: Vec<_> = loads.collect();
    for load in loads {
        assert!(load.await.unwrap().record.is_some());
    }
    let statements = calls(&postgres, &url, "unnest($3::uuid[]) AS a (id) JOIN");
    assert!((1..=400).contains(&statements), "{statements} statements for 4000 loads");
}

/// By the id alone, whatever the table's statistics say, and never by the index of what expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_settles_go_by_the_id_in_any_table() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    for round in 0..3 {
        let work = (0..400).map(|number| {
            let store = store.clone();
            tokio::spawn(async move { completed(&store, &draft(round * 1_000 + number)).await })
        });
        for done in work.collect::<Vec<_>>() {
            done.await.unwrap();
        }
        postgres.sql(&url, "ANALYZE onlyonce.record");
    }
    postgres.sql(&url, "SELECT pg_stat_force_next_flush()");
    let seq = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'record'";
    let expiry = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'record_expiry'";
    store.close().await;
    assert_eq!(postgres.sql(&url, expiry), "0");
    // Each index that was made read the table, and so did each ANALYZE before this one's session.
    let scans: i64 = postgres.sql(&url, seq).parse().unwrap();
    assert!(scans <= 3, "{scans} scans of the whole table");
}

/// The reaper's question is answered by the index that has only running and unknown records.
#[tokio::test]
async fn a_scan_of_what_is_open_reads_only_that() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &draft(1)).await;
    won(&store, &draft(2)).await;
    let query = Scan { states: StateSet::of(&[StateKind::Running]), after: None, limit: 10 };
    assert_eq!(store.scan(query).await.unwrap().records.len(), 1);
    store.close().await;
    let open = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'record_open'";
    assert_eq!(postgres.sql(&url, open), "1");
}
