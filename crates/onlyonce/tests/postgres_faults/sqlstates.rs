//! Statements that the server undoes, each for real.

use onlyonce::record::KeyText;
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::{Beat, Draft, Fault, Seen, Store, StoreError};
use servers::Postgres;
use tokio_postgres::Client;

use crate::lab::{
    draft, is_busy, is_unsure, lock, open, open_with, session, settle, settled, until,
    until_blocked, won,
};

/// A store with one writer, which waits for the row of operation 0.
struct Blocked {
    store: PostgresStore,
    other: Client,
    waits: tokio::task::JoinHandle<()>,
}

impl Blocked {
    async fn new(url: &str, options: PostgresOptions, rows: &[Draft]) -> Self {
        let store = open_with(url, options.with_writers(1)).await;
        let first = draft(0);
        won(&store, &first).await;
        for row in rows {
            won(&store, row).await;
        }
        let other = session(url).await;
        lock(&other, &first).await;
        let settles = store.clone();
        let waits = tokio::spawn(async move { settled(&settles, &first).await });
        until_blocked(&other).await;
        Self { store, other, waits }
    }

    async fn release(self) -> Client {
        self.other.batch_execute("COMMIT").await.unwrap();
        self.waits.await.unwrap();
        self.other
    }
}

// threat C7
#[tokio::test]
async fn a_row_that_someone_else_locks_is_not_done() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let (first, second) = (draft(1), draft(2));
    won(&store, &first).await;
    let other = session(&url).await;
    lock(&other, &first).await;
    let swap = settle(&store, &first).await;
    assert!(is_busy(&swap), "55P03 is definite: {swap:?}");
    won(&store, &second).await;
    other.batch_execute("COMMIT").await.unwrap();
    settled(&store, &first).await;
}

/// Nor does it hold up those who share its commit.
// threat C7
#[tokio::test]
async fn a_row_that_someone_else_locks_fails_alone() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let locked = draft(1);
    let blocked = Blocked::new(&url, PostgresOptions::new(), std::slice::from_ref(&locked)).await;
    let other = session(&url).await;
    lock(&other, &locked).await;
    let claim = |number: u64| {
        let store = blocked.store.clone();
        tokio::spawn(async move { won(&store, &draft(number)).await })
    };
    let claims: Vec<_> = (2..=40).map(claim).collect();
    let store = blocked.store.clone();
    let settles = tokio::spawn(async move { settle(&store, &locked).await });
    tokio::task::yield_now().await;
    blocked.release().await;
    for claim in claims {
        claim.await.unwrap();
    }
    let swap = settles.await.unwrap();
    assert!(is_busy(&swap), "{swap:?}");
}

/// Nor those who come later, for longer than a lock is waited for.
// threat C7
#[tokio::test]
async fn a_row_that_someone_else_locks_holds_up_nobody_who_comes_later() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let locked = draft(1);
    won(&store, &locked).await;
    let other = session(&url).await;
    lock(&other, &locked).await;
    let settles = store.clone();
    let waits = tokio::spawn(async move { settle(&settles, &locked).await });
    until(&other, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND clock_timestamp() > query_start + interval '150 ms')").await;
    let later = (2..20).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { won(&store, &draft(number)).await })
    });
    let later = futures_util::future::join_all(later.collect::<Vec<_>>());
    let later = tokio::time::timeout(std::time::Duration::from_secs(4), later).await;
    assert!(later.expect("the row is not waited for").iter().all(Result::is_ok));
    assert!(is_busy(&waits.await.unwrap()));
}

// threat C7
#[tokio::test]
async fn a_row_that_someone_else_locks_makes_no_other_lease_lapse() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let drafts = [draft(1), draft(2), draft(3)];
    for draft in &drafts {
        won(&store, draft).await;
    }
    let other = session(&url).await;
    lock(&other, &drafts[1]).await;
    let held = drafts.each_ref().map(|draft| (draft.id, draft.token));
    let beats = store.renew(&held, drafts[0].lease).await.unwrap();
    assert_eq!(beats, [Beat::Kept, Beat::Unsure, Beat::Kept]);
}

/// The other session locks the later row, then the earlier one: against the order of the batch.
// threat C5
#[tokio::test]
async fn a_deadlock_is_undone_and_done_again() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let (first, second) = (draft(1), draft(2));
    // The store looks for a ring once, shortly before it gives up waiting; the other one does not.
    let theirs = format!("{url}?options=-cdeadlock_timeout%3D1900");
    let blocked =
        Blocked::new(&theirs, PostgresOptions::new(), &[first.clone(), second.clone()]).await;
    let other = session(&url).await;
    other.batch_execute("SET deadlock_timeout = '1min'").await.unwrap();
    lock(&other, &second).await;
    let (store, both) = (blocked.store.clone(), (first.clone(), second));
    let settles = tokio::spawn(async move {
        tokio::join!(settled(&store, &both.0), settled(&store, &both.1));
    });
    blocked.release().await;
    until_blocked(&other).await;
    let against = format!("SELECT FROM onlyonce.record WHERE id = '{}' FOR UPDATE", first.id);
    other.batch_execute(&against).await.expect("the store is the one to give way");
    other.batch_execute("COMMIT").await.unwrap();
    settles.await.unwrap();
    let states = postgres.sql(&url, "SELECT count(*) FROM onlyonce.record WHERE state = 4");
    assert_eq!(states, "3", "all were settled");
    assert!(postgres.log().contains("deadlock detected"), "there was a deadlock");
}

/// Raises 40001 as often as it is told to.
const UNLUCKY: &str = "
    CREATE SEQUENCE onlyonce.luck;
    CREATE FUNCTION onlyonce.unlucky() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF nextval('onlyonce.luck') <= TG_ARGV[0]::bigint THEN
        RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001';
      END IF;
      RETURN NEW;
    END $$;";

// threat C5
#[tokio::test]
async fn a_serialization_failure_is_tried_again_within_bounds() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let trigger = |times| {
        format!(
            "CREATE OR REPLACE TRIGGER unlucky BEFORE INSERT ON onlyonce.record
               FOR EACH ROW EXECUTE FUNCTION onlyonce.unlucky({times})"
        )
    };
    postgres.sql(&url, &format!("{UNLUCKY} {}", trigger(3)));
    won(&store, &draft(1)).await;
    postgres.sql(&url, &format!("SELECT setval('onlyonce.luck', 1); {}", trigger(1_000_000)));
    let claim = store.claim(draft(2)).await;
    assert!(is_busy(&claim), "every time: {claim:?}");
    postgres.sql(&url, "DROP TRIGGER unlucky ON onlyonce.record");
    won(&store, &draft(2)).await;
}

// threat C7
#[tokio::test]
async fn a_statement_that_is_cancelled_is_unsure() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let first = draft(1);
    won(&store, &first).await;
    let other = session(&url).await;
    lock(&other, &first).await;
    let cancels = async {
        until_blocked(&other).await;
        let cancel =
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        other.batch_execute(cancel).await.unwrap();
    };
    let (swap, ()) = tokio::join!(settle(&store, &first), cancels);
    assert!(is_unsure(&swap), "57014: {swap:?}");
    other.batch_execute("COMMIT").await.unwrap();
    settled(&store, &first).await;
}

/// The server gives up waiting for its standby, and reports the commit nevertheless.
// threat C3
#[tokio::test]
async fn a_commit_that_no_standby_has_is_unsure() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let reload = "SELECT pg_reload_conf()";
    postgres.sql(&url, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    postgres.sql(&url, reload);
    let other = session(&url).await;
    until(&other, "SELECT current_setting('synchronous_standby_names') = 'nobody'").await;
    let cancels = async {
        let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        until(&other, &format!("SELECT EXISTS (SELECT {waits})")).await;
        other.batch_execute(&format!("SELECT pg_cancel_backend(pid) {waits}")).await.unwrap();
    };
    // Some may be earlier than the process of the server that tells commits to wait.
    let claims = async {
        for number in 1..10_000 {
            let draft = draft(number);
            let claim = store.claim(draft.clone()).await;
            if claim.is_err() {
                return (draft, claim);
            }
        }
        panic!("no commit waits for a standby");
    };
    let ((first, claim), ()) = tokio::join!(claims, cancels);
    assert!(is_unsure(&claim), "{claim:?}");
    let again = store.claim(first).await;
    assert!(again.is_err(), "no standby has it yet: {again:?}");
}

// threat A8
#[tokio::test]
async fn a_bad_member_of_a_batch_fails_alone() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let blocked = Blocked::new(&url, PostgresOptions::new(), &[]).await;
    let bad = [7, 30];
    let claim = |number: u64| {
        let key = if bad.contains(&number) { "a\0b".to_owned() } else { format!("key {number}") };
        let draft = Draft { key: KeyText::new(key), ..draft(number) };
        let store = blocked.store.clone();
        async move { (number, store.claim(draft).await) }
    };
    let claims: Vec<_> = (1..=40).map(|number| tokio::spawn(claim(number))).collect();
    tokio::task::yield_now().await;
    blocked.release().await;
    for claim in claims {
        let (number, answer) = claim.await.unwrap();
        match answer {
            Ok(Seen { mine: true, .. }) => assert!(!bad.contains(&number)),
            Err(Fault::NotDone(StoreError::Refused(_))) => assert!(bad.contains(&number)),
            other => panic!("{number}: {other:?}"),
        }
    }
}

/// A page that the server cannot read is the trouble of its rows alone. A trigger says what the server would.
// threat A8
#[tokio::test]
async fn a_damaged_row_of_a_batch_fails_alone() {
    let postgres = Postgres::start();
    let url = postgres.database();
    open(&url).await.close().await;
    postgres.sql(
        &url,
        "CREATE FUNCTION damaged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = 'XX001'; END $$;
         CREATE TRIGGER damaged BEFORE INSERT ON onlyonce.record FOR EACH ROW
           WHEN (NEW.key = 'damaged') EXECUTE FUNCTION damaged()",
    );
    let blocked = Blocked::new(&url, PostgresOptions::new(), &[]).await;
    let bad = [7, 30];
    let claim = |number: u64| {
        let key =
            if bad.contains(&number) { "damaged".to_owned() } else { format!("key {number}") };
        let draft = Draft { key: KeyText::new(key), ..draft(number) };
        let store = blocked.store.clone();
        async move { (number, store.claim(draft).await) }
    };
    let claims: Vec<_> = (1..=40).map(|number| tokio::spawn(claim(number))).collect();
    tokio::task::yield_now().await;
    blocked.release().await;
    for claim in claims {
        let (number, answer) = claim.await.unwrap();
        match answer {
            Ok(Seen { mine: true, .. }) => assert!(!bad.contains(&number)),
            Err(Fault::NotDone(StoreError::Unreadable(_))) => assert!(bad.contains(&number)),
            other => panic!("{number}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn what_breaks_a_constraint_is_refused() {
    let postgres = Postgres::start();
    let store = open(&postgres.database()).await;
    let claim = store.claim(Draft { ttl_ms: -1, ..draft(1) }).await;
    assert!(matches!(claim, Err(Fault::NotDone(StoreError::Refused(_)))), "{claim:?}");
    won(&store, &draft(1)).await;
}

/// Another node commits the same key after it was looked for. The others in the batch do not notice, and nothing is
/// written to the server's log.
// R48, threat B12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_overtaken_sees_the_winner_and_the_others_do_not_notice() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open_with(&url, PostgresOptions::new().with_writers(1)).await;
    let winner = draft(0);
    won(&store, &winner).await;
    let other = session(&url).await;
    for raced in [10, 20, 30] {
        let copy = format!(
            "BEGIN; INSERT INTO onlyonce.record SELECT (jsonb_populate_record(r, jsonb_build_object('id', '{}'))).*
               FROM onlyonce.record r WHERE id = '{}'",
            draft(raced).id, winner.id
        );
        other.batch_execute(&copy).await.unwrap();
        let claims = (raced - 5..raced + 5).map(|number| {
            let store = store.clone();
            tokio::spawn(async move { (number, store.claim(draft(number)).await.unwrap()) })
        });
        let claims: Vec<_> = claims.collect();
        until_blocked(&session(&url).await).await;
        other.batch_execute("COMMIT").await.unwrap();
        for claim in claims {
            let (number, seen) = claim.await.unwrap();
            assert_eq!(seen.mine, number != raced, "{number}");
            assert_eq!(seen.record.unwrap().token == winner.token, number == raced);
        }
    }
    assert_eq!(postgres.log().matches("duplicate key value").count(), 0);
}

// threat C11
#[tokio::test]
async fn a_full_queue_is_busy_and_nothing_in_it_is_lost() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let blocked = Blocked::new(&url, PostgresOptions::new().with_queue_max(8), &[]).await;
    let claim = |number: u64| {
        let store = blocked.store.clone();
        tokio::spawn(async move { store.claim(draft(number)).await })
    };
    let claims: Vec<_> = (1..=20).map(claim).collect();
    tokio::task::yield_now().await;
    blocked.release().await;
    let (mut won, mut busy) = (0, 0);
    for claim in claims {
        match claim.await.unwrap() {
            Ok(Seen { mine: true, .. }) => won += 1,
            Err(Fault::NotDone(StoreError::Busy)) => busy += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((won, busy), (8, 12));
}
