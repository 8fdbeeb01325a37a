//! What calls cost the server.

use futures_util::future::{join, join_all};
use onlyonce::record::{Revision, StateKind, StateSet};
use onlyonce::store::postgres::PostgresOptions;
use onlyonce::store::{Beat, Guard, Maintain, Next, Scan, Store, Swap};
use servers::Postgres;

use crate::lab::{
    completed, draft, lock, open, open_with, session, settle, settled, until_blocked, until_gone,
    won,
};

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
    // The server's own vacuum may take one.
    assert!(after - before < 5, "{} for 400 calls", after - before);
}

/// It reads first: who finds a record there need not wait for whoever writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_does_not_wait_for_a_row_that_someone_writes() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &draft(1)).await;
    let writer = session(&url).await;
    writer.batch_execute("BEGIN; UPDATE onlyonce.record SET count = count + 1").await.unwrap();
    let seen = store.claim(draft(1)).await.expect("the record is read as it was");
    assert!(seen.record.is_some_and(|record| record.response().is_some()) && !seen.mine);
    writer.batch_execute("ROLLBACK").await.unwrap();
}

/// Claims and settles that queue together are one commit: each has its own answer, and its own guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_settles_of_one_batch_are_judged_each_for_itself() {
    const COUNT: u64 = 200;
    let postgres = Postgres::start();
    let url = postgres.database();
    postgres.sql(&url, "CREATE EXTENSION pg_stat_statements");
    let store = open_with(&url, PostgresOptions::new().with_writers(1)).await;
    let owners: Vec<_> = (0..COUNT).map(draft).collect();
    join_all(owners.iter().map(|owner| won(&store, owner))).await;
    // The writer waits for this one, so that all the others queue.
    let (first, other) = (draft(9_999), session(&url).await);
    won(&store, &first).await;
    lock(&other, &first).await;
    let waiter = store.clone();
    let waits = tokio::spawn(async move { settled(&waiter, &first).await });
    until_blocked(&other).await;
    let strangers: Vec<_> = (0..COUNT).map(draft).collect();
    let settles =
        owners.iter().zip(&strangers).enumerate().map(|(n, (owner, stranger))| {
            settle(&store, if n % 2 == 0 { owner } else { stranger })
        });
    let claims = (COUNT..2 * COUNT).map(|number| store.claim(draft(number)));
    let all = join(join_all(settles), join_all(claims));
    let ((swaps, seen), released) = join(all, other.batch_execute("COMMIT")).await;
    released.unwrap();
    waits.await.unwrap();
    for (n, swap) in swaps.into_iter().enumerate() {
        match swap.expect("the store answers") {
            Swap::Done(revision) => {
                assert_eq!(n % 2, 0, "a stranger settled");
                assert_eq!(revision, Revision { token: owners[n].token, count: 2 });
            }
            Swap::Stale(seen) => {
                assert_eq!(n % 2, 1, "an owner was refused");
                assert_eq!(seen.record.map(|record| record.token), Some(owners[n].token));
            }
        }
    }
    assert!(seen.into_iter().all(|seen| seen.expect("the store answers").mine));
    let both = calls(&postgres, &url, "BEGIN");
    assert!(both > 0, "no batch had both");
}

// threat I1
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
    let statements = calls(&postgres, &url, "unnest($1::uuid[]) AS a (id) JOIN");
    assert!((1..=400).contains(&statements), "{statements} statements for 4000 loads");
}

/// By the id alone, whatever the table's statistics say.
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
    let others = "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE relname = 'record' AND indexrelname <> 'record_id'";
    store.close().await;
    until_gone(&session(&url).await).await;
    assert_eq!(postgres.sql(&url, others), "0");
    // Each index that was made read the table, and so did each ANALYZE before this one's session.
    let scans: i64 = postgres.sql(&url, seq).parse().unwrap();
    assert!(scans <= 4, "{scans} scans of the whole table");
}

/// No index has an entry more for it: it changes no column that one names.
// threat C12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_makes_no_entry_in_an_index() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let runs = draft(1_000);
    won(&store, &runs).await;
    for _ in 0..5 {
        let held = [(runs.id, runs.token)];
        assert_eq!(store.renew(&held, runs.lease).await.unwrap(), [Beat::Kept]);
    }
    store.close().await;
    until_gone(&session(&url).await).await;
    let updates = "SELECT n_tup_upd, n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'record'";
    assert_eq!(postgres.sql(&url, updates), "5|0");
}

/// The question of who settles what is unknown is answered by the index that has only that.
#[tokio::test]
async fn a_scan_of_what_is_unknown_reads_only_that() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &draft(1)).await;
    let unknown = draft(2);
    won(&store, &unknown).await;
    let guard = Guard::Owner { token: unknown.token, states: StateSet::of(&StateKind::ALL[..3]) };
    store.swap(unknown.id, guard, Next::Unknown { since: None }).await.unwrap();
    let query = Scan { states: StateSet::of(&[StateKind::Unknown]), after: None, limit: 10 };
    assert_eq!(store.scan(query).await.unwrap().records.len(), 1);
    store.close().await;
    until_gone(&session(&url).await).await;
    let read = "SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'record_unknown'";
    assert_eq!(postgres.sql(&url, read), "1|1");
}
