//! Sweeps among others.

use std::time::Duration;

use onlyonce::record::{StateKind, StateSet};
use onlyonce::store::{Draft, Guard, Maintain, Next, Scan, Store, Swap, Swept, Takeover};
use servers::Postgres;
use tokio::time::timeout;

use crate::lab::{brief, completed, draft, lock, now, open, session, settled, until_gone, won};

// R114, threat I6
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
    let sweep = store.sweep(now(&store).await, 100);
    let sweep = timeout(Duration::from_secs(1), sweep).await.expect("it does not wait");
    assert_eq!(sweep.unwrap(), Swept { deleted: 4, more: false });
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        store.sweep(now(&store).await, 100).await.unwrap(),
        Swept { deleted: 1, more: false }
    );
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
        "UPDATE onlyonce.record SET expires_at = expires_at + interval '1 hour' WHERE id = '{}'",
        brief(1).id
    );
    other.batch_execute(&later).await.unwrap();
    assert_eq!(
        store.sweep(now(&store).await, 100).await.unwrap(),
        Swept { deleted: 0, more: false }
    );
    assert!(store.load(brief(1).id).await.unwrap().record.is_some());
}

/// Whatever way a record went before it ended, and though its claim did not foresee when.
#[tokio::test]
async fn everything_that_has_expired_is_swept_whatever_became_of_it_before() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let swap = async |draft: &Draft, to: Next| {
        let guard = Guard::Owner { token: draft.token, states: StateSet::of(&StateKind::ALL[..3]) };
        let done = store.swap(draft.id, guard, to).await.unwrap();
        assert!(matches!(done, Swap::Done(_)), "{done:?}");
    };
    let take = async |number: u64| {
        let found = store.load(draft(number).id).await.unwrap().record.unwrap();
        let draft = brief(number);
        let attempt =
            Takeover { draft: draft.clone(), attempt: 2, taken_from: None, first_claimed_at: None };
        let (guard, to) = (Guard::Unchanged(found.revision()), Next::Running(Box::new(attempt)));
        let taken = store.swap(draft.id, guard, to).await.unwrap();
        assert!(matches!(taken, Swap::Done(_)), "{taken:?}");
        draft
    };
    let unknown = || Next::Unknown { since: None };
    let released = || Next::Released { expires_at: None };
    let drafts: Vec<_> = (0..6).map(brief).collect();
    for draft in &drafts {
        won(&store, draft).await;
    }
    settled(&store, &drafts[0]).await;
    swap(&drafts[1], unknown()).await;
    settled(&store, &drafts[1]).await;
    swap(&drafts[2], released()).await;
    swap(&drafts[3], unknown()).await;
    swap(&drafts[3], released()).await;
    swap(&drafts[4], released()).await;
    settled(&store, &take(4).await).await;
    swap(&drafts[5], unknown()).await;
    settled(&store, &take(5).await).await;
    // These have not ended, whatever the clock says.
    won(&store, &brief(6)).await;
    let left = brief(7);
    won(&store, &left).await;
    swap(&left, unknown()).await;
    assert_eq!(
        store.sweep(now(&store).await, 100).await.unwrap(),
        Swept { deleted: 6, more: false }
    );
    assert_eq!(postgres.sql(&url, "SELECT count(*) FROM onlyonce.record"), "2");
}

/// It expires at infinity.
#[tokio::test]
async fn a_record_that_is_kept_for_ever_is_completed_and_not_swept() {
    let postgres = Postgres::start();
    let store = open(&postgres.database()).await;
    let (kept, settled_late) = (for_ever(1), for_ever(2));
    completed(&store, &kept).await;
    won(&store, &settled_late).await;
    let guard =
        Guard::Owner { token: settled_late.token, states: StateSet::of(&[StateKind::Running]) };
    let to = Next::Unknown { since: None };
    store.swap(settled_late.id, guard, to).await.unwrap();
    settled(&store, &settled_late).await;
    assert_eq!(
        store.sweep(now(&store).await, 100).await.unwrap(),
        Swept { deleted: 0, more: false }
    );
}

fn for_ever(number: u64) -> Draft {
    Draft { ttl_ms: i64::MAX, ..draft(number) }
}

/// In pieces: other maintenance calls do not wait for the end.
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
    let sweep =
        tokio::spawn(async move { sweeps.sweep(now(&sweeps).await, 1_000_000).await.unwrap() });
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

/// Deleted rows that an old snapshot still needs cannot be cleaned up: the sweep must not read them again for each piece.
// threat C12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_goes_on_where_it_stopped_while_a_transaction_is_pinned_open() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    completed(&store, &brief(1)).await;
    let copies = "INSERT INTO onlyonce.record SELECT (r).* FROM (
        SELECT jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid(),
                 'expires_at', r.expires_at + i * interval '1 millisecond')) AS r
          FROM onlyonce.record r, generate_series(1, 3000) i) x";
    postgres.sql(&url, copies);
    let pins = session(&url).await;
    let pin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM onlyonce.record";
    pins.batch_execute(pin).await.unwrap();
    let until = now(&store).await.plus_ms(10_000);
    let mut deleted = 0;
    while deleted < 2_900 {
        deleted += store.sweep(until, 100).await.unwrap().deleted;
    }
    store.close().await;
    until_gone(&session(&url).await).await;
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'record_expiry'";
    let read: i64 = postgres.sql(&url, read).parse().unwrap();
    assert!(read < 4 * 3_000, "{read} entries were read for {deleted} rows");
}
