//! Connections that break.

use std::time::Duration;

use futures_util::future::join_all;
use onlyonce::record::{StateKind, StateSet};
use onlyonce::scope::OperationId;
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::{Beat, Draft, Guard, Lease, Next, Store, Swap};
use servers::{Pgbouncer, Postgres};
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::lab::{
    completed, draft, is_away, is_full, is_unsure, open, open_with, session, settle, settled,
    until, until_blocked, won,
};
use crate::proxy::{Mode, Proxy};

// R52, threat C1
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unsure_and_found_when_repeated() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let proxy = Proxy::start(postgres.port());
    let store = open(&proxy.url(&url)).await;
    for number in 0..if is_full() { 1_000 } else { 40 } {
        let draft = draft(number);
        proxy.set(Mode::CutAnswer(draft.id));
        let claim = store.claim(draft.clone()).await;
        assert!(is_unsure(&claim), "{claim:?}");
        won(&store, &draft).await;
        proxy.set(Mode::CutAnswer(draft.id));
        let swap = settle(&store, &draft).await;
        assert!(is_unsure(&swap), "{swap:?}");
        settled(&store, &draft).await;
    }
    let rows = postgres.sql(&url, "SELECT count(*), max(count), min(state) FROM onlyonce.record");
    let count = if is_full() { 1_000 } else { 40 };
    assert_eq!(rows, format!("{count}|2|4"), "each was claimed once and settled once");
}

// R52
#[tokio::test]
async fn a_request_that_is_lost_is_unsure_and_done_when_repeated() {
    let postgres = Postgres::start();
    let proxy = Proxy::start(postgres.port());
    let store = open(&proxy.url(&postgres.database())).await;
    for number in 0..10 {
        proxy.set(Mode::CutRequest(draft(number).id));
        assert!(is_unsure(&store.claim(draft(number)).await));
        completed(&store, &draft(number)).await;
    }
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_is_unsure() {
    let postgres = Postgres::start();
    let proxy = Proxy::start(postgres.port());
    let store = open(&proxy.url(&postgres.database())).await;
    let draft = draft(1);
    won(&store, &draft).await;
    let held = [(draft.id, draft.token)];
    let lease = Lease::new(Duration::from_secs(30));
    proxy.set(Mode::CutAnswer(draft.id));
    assert_eq!(store.renew(&held, lease).await.unwrap(), [Beat::Unsure]);
    assert_eq!(store.renew(&held, lease).await.unwrap(), [Beat::Kept]);
}

/// Every line is cut while nobody asks; loads and claims after it are none the worse.
#[tokio::test]
async fn a_line_that_broke_unnoticed_is_made_anew() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let proxy = Proxy::start(postgres.port());
    let store = open(&proxy.url(&url)).await;
    completed(&store, &draft(1)).await;
    proxy.cut_all();
    let others = session(&url).await;
    until(
        &others,
        "SELECT count(*) <= 1 FROM pg_stat_activity WHERE application_name = 'onlyonce'",
    )
    .await;
    assert!(store.load(draft(1).id).await.unwrap().record.is_some());
    completed(&store, &draft(2)).await;
}

// threat C7
#[tokio::test]
async fn a_server_that_stands_still_hangs_nobody() {
    let postgres = Postgres::start();
    let proxy = Proxy::start(postgres.port());
    let store = open(&proxy.url(&postgres.database())).await;
    let first = draft(1);
    won(&store, &first).await;
    proxy.set(Mode::Stall);
    let both =
        async { tokio::join!(store.claim(draft(2)), settle(&store, &first), store.load(first.id)) };
    let (claim, swap, load) = timeout(Duration::from_secs(12), both).await.expect("nobody hangs");
    assert!(is_unsure(&claim), "{claim:?}");
    assert!(swap.is_err() && load.is_err(), "{swap:?}, {load:?}");
    proxy.set(Mode::Pass);
    let answered = async {
        while store.claim(draft(3)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), answered).await.expect("it recovers");
}

// threat C2
#[tokio::test]
async fn while_the_server_is_away_nothing_is_done_and_everyone_is_told_so() {
    let mut postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let first = draft(1);
    won(&store, &first).await;
    postgres.kill();
    // The first may have been under way when the line broke.
    let _ = store.claim(draft(2)).await;
    let _ = store.load(draft(1).id).await;
    for number in 3..20 {
        let (claim, load) = tokio::join!(
            timeout(Duration::from_secs(2), store.claim(draft(number))),
            timeout(Duration::from_secs(2), store.load(draft(1).id)),
        );
        assert!(is_away(&claim.expect("at once")) && is_away(&load.expect("at once")));
    }
    postgres.start_again();
    let back = async {
        loop {
            match settle(&store, &first).await {
                Ok(swap) => return assert!(matches!(swap, Swap::Done(_)), "{swap:?}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(Duration::from_secs(10), back).await.expect("it comes back by itself");
}

/// The first copy of a claim is still on its way when its repetition was answered and given back.
// threat C1
#[tokio::test]
async fn what_an_old_session_left_is_not_run_after_what_a_new_one_answered() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let proxy = Proxy::start(postgres.port());
    let store = open(&proxy.url(&url)).await;
    let watcher = session(&url).await;
    let before = sessions(&watcher).await;
    let draft = draft(1);
    proxy.set(Mode::KeepRequest(draft.id));
    let claim = store.claim(draft.clone()).await;
    assert!(is_unsure(&claim), "{claim:?}");
    repeated(&store, &draft, &watcher, &before).await;
    let states = StateSet::of(&[StateKind::Running]);
    let guard = Guard::Owner { token: draft.token, states };
    let released = store.swap(draft.id, guard, Next::Absent).await;
    assert!(matches!(released, Ok(Swap::Done(_))), "{released:?}");
    proxy.deliver();
    until(&watcher, &format!("SELECT count(*) = 5 FROM {SESSIONS}")).await;
    assert_eq!(store.load(draft.id).await.unwrap().record, None, "nobody would end it");
}

/// The same in a crowd: the other writer goes on, and the repetition waits for the session that may still do it.
// threat C1
#[tokio::test]
async fn who_is_unsure_tries_again_with_the_writer_that_may_still_do_it() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let proxy = Proxy::start(postgres.port());
    let options = PostgresOptions::new().with_writers(2);
    let store = open_with(&proxy.url(&url), options).await;
    let watcher = session(&url).await;
    let before = sessions(&watcher).await;
    let last = draft(1_000);
    proxy.set(Mode::KeepRequest(last.id));
    let blocker = session(&url).await;
    blocker
        .batch_execute("BEGIN; LOCK TABLE onlyonce.record IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let claims = (0..150).map(draft).chain([last.clone()]).map(|draft| {
        let store = store.clone();
        tokio::spawn(async move { store.claim(draft).await })
    });
    let claims: Vec<_> = claims.collect();
    until_blocked(&watcher).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    let answers = join_all(claims).await;
    let sure = answers.iter().filter(|answer| matches!(answer, Ok(Ok(seen)) if seen.mine)).count();
    assert!(sure >= 30, "the other writer goes on: {sure}");
    let claim = answers.into_iter().next_back().unwrap().unwrap();
    assert!(is_unsure(&claim), "{claim:?}");
    repeated(&store, &last, &watcher, &before).await;
}

/// It is answered once the session that may still do it is gone, and no sooner.
async fn repeated(store: &PostgresStore, draft: &Draft, watcher: &Client, before: &[i32]) {
    won(store, draft).await;
    let now = sessions(watcher).await;
    let left = before.iter().filter(|pid| now.contains(pid)).count();
    assert_eq!(left, before.len() - 1, "of {before:?} there are {now:?}");
}

async fn sessions(watcher: &Client) -> Vec<i32> {
    let rows = watcher.query(&format!("SELECT pid FROM {SESSIONS}"), &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Those of the store.
const SESSIONS: &str = "pg_stat_activity WHERE application_name = 'onlyonce'";

/// One writer is cut, and cannot come back: the other one serves, and the first one comes back when it can.
#[tokio::test]
async fn a_writer_that_cannot_connect_fails_alone_and_comes_back() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let proxy = Proxy::start(postgres.port());
    let options = PostgresOptions::new().with_writers(2);
    let store = open_with(&proxy.url(&url), options).await;
    won(&store, &draft(0)).await;
    let watcher = session(&url).await;
    until(&watcher, &format!("SELECT count(*) = 6 FROM {SESSIONS}")).await;
    proxy.set(Mode::Refuse);
    let cut =
        format!("SELECT pg_terminate_backend(pid) FROM {SESSIONS} AND query LIKE '%INSERT INTO%'");
    assert_eq!(watcher.query(&cut, &[]).await.unwrap().len(), 1, "one of them has claimed");
    until(&watcher, &format!("SELECT count(*) = 5 FROM {SESSIONS}")).await;
    let mut served = 0;
    for number in 1..50 {
        let claim = store.claim(draft(number)).await;
        served += usize::from(claim.is_ok());
        assert!(claim.is_ok() || is_away(&claim) || is_unsure(&claim), "{claim:?}");
    }
    assert!((10..40).contains(&served), "about half of the ids are the other writer's: {served}");
    proxy.set(Mode::Pass);
    let back = async {
        for number in 100..150 {
            while store.claim(draft(number)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    timeout(Duration::from_secs(10), back).await.expect("it comes back by itself");
}

#[tokio::test]
async fn a_maintenance_call_whose_answer_is_lost_is_unsure_though_the_server_stays_away() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let proxy = Proxy::start(postgres.port());
    let store = open(&proxy.url(&url)).await;
    let to = "postgres://other";
    let named = to.as_bytes().try_into().map(OperationId::from_bytes);
    proxy.set(Mode::CutAnswerForGood(named.expect("16 bytes, as the line looks for")));
    let marked = store.mark_moved(to).await;
    assert!(is_unsure(&marked), "{marked:?}");
}

/// A pooler gives the sessions of lines that were cut while they rested to whoever asks next, to us too.
#[tokio::test]
async fn lines_that_get_each_others_sessions_from_a_pooler_come_back() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let pooler = Pgbouncer::start(&postgres, "session");
    let pooled = pooler.url(&url);
    let proxy = Proxy::start(port(&pooled));
    let store = open(&proxy.url(&pooled)).await;
    for number in 0..3 {
        proxy.cut_all();
        let back = async {
            while store.claim(draft(number)).await.is_err()
                || store.load(draft(number).id).await.is_err()
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), back).await.expect("it comes back");
    }
}

fn port(url: &str) -> u16 {
    let (_, after) = url.rsplit_once(':').unwrap();
    after.split('/').next().unwrap().parse().unwrap()
}
