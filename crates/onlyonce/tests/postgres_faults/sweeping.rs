//! Sweeps among others.

use std::time::Duration;

use onlyonce::record::{StateKind, StateSet};
use onlyonce::store::{Maintain, Scan, Store, Swept};
use servers::Postgres;
use tokio::time::timeout;

use crate::lab::{brief, completed, draft, lock, open, session};

// threat I6
#[tokio::test]
async fn a_sweep_passes_rows_that_someone_has_locked() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    for number in 1..=5 {
        completed(&store, &brief(number)).await;
    }
    let other = session(&url).await;
    lock(&other, &brief(3)).await;
    let sweep = timeout(Duration::from_secs(1), store.sweep(100)).await.expect("it does not wait");
    assert_eq!(sweep.unwrap(), Swept { deleted: 4, more: false });
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.sweep(100).await.unwrap(), Swept { deleted: 1, more: false });
}

/// The row was taken while the sweep looked: it is judged again when it is locked.
// threat I6
#[tokio::test]
async fn a_sweep_spares_a_row_that_was_renewed_before_it_got_it() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &brief(1)).await;
    let other = session(&url).await;
    let later = format!(
        "UPDATE onlyonce.record SET expires_at = expires_at + 3600000 WHERE id = '{}'",
        brief(1).id
    );
    other.batch_execute(&later).await.unwrap();
    assert_eq!(store.sweep(100).await.unwrap(), Swept { deleted: 0, more: false });
    assert!(store.load(brief(1).id).await.unwrap().record.is_some());
}

/// In pieces: whoever else needs the housekeeper does not wait for the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_sweep_lets_others_through() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &brief(1)).await;
    let copies = "INSERT INTO onlyonce.record SELECT (r).* FROM (
        SELECT jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid())) AS r
          FROM onlyonce.record r, generate_series(1, 20000)) x";
    postgres.sql(&url, copies);
    let sweeps = store.clone();
    let sweep = tokio::spawn(async move { sweeps.sweep(1_000_000).await.unwrap() });
    tokio::task::yield_now().await;
    let query = Scan { states: StateSet::of(&[StateKind::Running]), after: None, limit: 10 };
    let page = timeout(Duration::from_secs(1), store.scan(query)).await.expect("it is let through");
    assert!(page.unwrap().records.is_empty());
    completed(&store, &draft(7)).await;
    let swept = timeout(Duration::from_secs(5), sweep).await.expect("a sweep is bounded").unwrap();
    assert!(swept.deleted >= 1_000, "{swept:?}");
    let left: usize = postgres.sql(&url, "SELECT count(*) FROM onlyonce.record").parse().unwrap();
    assert_eq!(left + swept.deleted, 20_002);
    assert_eq!(swept.more, left > 1);
}
