//! The trail in Postgres: many writers, each with a chain, and connections that break.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::EventKind::{Claimed, Executed, Expired, Replayed};
use onlyonce::Outcome;
use onlyonce::clock::StoreTime;
use onlyonce::store::audit::{AuditOptions, EntryQuery, Trail, verify};
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::{Fault, Inspect, Maintain};
use servers::Postgres;
use tokio::task::JoinHandle;

use super::crash::{agree, draft, note, work};
use super::lab::{Lab, Later, all, faults};
use super::tampering::{Dialect, Random, fill, stop};
use super::{life, retention};

async fn open(url: &str) -> PostgresStore {
    let options = PostgresOptions::new().with_audit(AuditOptions::default());
    PostgresStore::open_with(url, options).await.unwrap()
}

async fn lab(url: &str) -> Lab {
    Lab::on(open(url).await, Later::default(), tempfile::tempdir().unwrap())
}

#[tokio::test]
async fn every_change_of_a_record_is_told_once_by_postgres() {
    let server = Postgres::start();
    life::tells_every_change_once(&lab(&server.url()).await).await;
}

#[tokio::test]
async fn the_trail_outlives_the_key_in_postgres() {
    let server = Postgres::start();
    let url = server.url();
    let (lab, store) = (lab(&url).await, open(&url).await);
    assert_eq!(lab.run("order-8", "ch_8").await, Outcome::Fresh("ch_8".to_owned()));
    assert_eq!(lab.run("order-8", "again").await, Outcome::Replayed("ch_8".to_owned()));
    lab.entries("order-8", 3).await;
    let swept = store.sweep(StoreTime::from_ms(i64::MAX / 2), 100).await.unwrap();
    assert_eq!((swept.deleted, swept.more), (1, false));
    let mut entries = lab.entries("order-8", 4).await;
    entries.sort_by_key(|entry| entry.at);
    let kinds: Vec<_> = entries.iter().map(|entry| entry.note.kind).collect();
    assert_eq!(kinds.last(), Some(&Expired), "{kinds:?}");
    assert!([Claimed, Executed, Replayed].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    let expired = &entries.last().unwrap().note;
    assert_eq!((&*expired.about.route, expired.about.attempt), ("charges", Some(1)));
    lab.whole().await;
}

#[tokio::test]
async fn old_entries_go_and_the_rest_is_whole_in_postgres() {
    let server = Postgres::start();
    retention::forgets_the_oldest_first(open(&server.url()).await.audit().unwrap()).await;
    let database = server.database();
    retention::adds_a_repeated_batch_once(open(&database).await.audit().unwrap()).await;
}

// threat K19
#[tokio::test]
async fn the_trail_calls_nothing_of_the_search_path() {
    let server = Postgres::start();
    let plain = [server.database(), server.database()];
    let url = plain.each_ref().map(|database| server.make_hostile(database));
    life::tells_every_change_once(&lab(&url[0]).await).await;
    retention::forgets_the_oldest_first(open(&url[1]).await.audit().unwrap()).await;
    assert!(!plain.iter().any(|database| server.has_caught(database)));
}

#[tokio::test]
async fn nodes_have_chains_of_their_own_and_forget_each_others_old_entries() {
    let server = Postgres::start();
    let url = server.url();
    let (one, two) = (open(&url).await, open(&url).await);
    one.audit().unwrap().append(retention::batch(1, 100, 30)).await.unwrap();
    two.audit().unwrap().append(retention::batch(2, 100, 30)).await.unwrap();
    one.close().await;
    let heads = two.heads().await.unwrap();
    assert_eq!(heads.len(), 2);
    assert_eq!((all(&two).await.len(), faults(&two).await), (60, 0));
    let audit = two.audit().unwrap();
    assert!(audit.prune(StoreTime::from_ms(200), 20).await.unwrap());
    assert!(!audit.prune(StoreTime::from_ms(200), 20).await.unwrap());
    assert_eq!((all(&two).await.len(), faults(&two).await), (0, 0));
    assert!(verify(&two, &heads).await.unwrap().is_whole(), "what was kept elsewhere still fits");
}

#[tokio::test]
async fn two_hundred_tamperings_of_two_hundred_are_told_of_a_schema() {
    let server = Postgres::start();
    let url = server.url();
    let lab = lab(&url).await;
    fill(&lab).await;
    lab.whole().await;
    let mut heads = lab.once.operations().audit_heads().await.unwrap();
    heads.sort_by_key(|head| head.last.sequence);
    let longest = heads.pop().unwrap();
    let Lab { once, .. } = lab;
    stop(once).await;
    let (store, beside) = (open(&url).await, connect(&url).await);
    let writer: String = longest.writer.to_bytes().iter().map(|b| format!("{b:02x}")).collect();
    let dialect = Dialect {
        bytes: |hex| match hex.len() {
            32 => format!("'{hex}'::uuid"),
            _ => format!("'\\x{hex}'::bytea"),
        },
        moment: "interval '1 microsecond'",
        chain: format!("writer = '\\x{writer}'"),
        columns: "writer, hash, at, kind, id, key, route, principal, attempt, status, count, who, why, ids",
    };
    let mut random = Random(0x5EED);
    beside.batch_execute("SET search_path = onlyonce").await.unwrap();
    beside
        .batch_execute("CREATE TABLE a AS TABLE audit; CREATE TABLE h AS TABLE audit_head")
        .await
        .unwrap();
    for n in 0..200 {
        let sql = dialect.tampering(&mut random, longest.last.sequence);
        beside.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
        assert!(faults(&store).await > 0, "tampering {n} was not told: {sql}");
        beside.batch_execute(RESTORE).await.unwrap();
        assert_eq!(faults(&store).await, 0, "the trail is whole again");
    }
}

const RESTORE: &str = "TRUNCATE audit, audit_head; INSERT INTO audit SELECT * FROM a;
    INSERT INTO audit_head SELECT * FROM h";

/// The server ends sessions, and dies twice: no change without its entry, no entry without its change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_end_leave_records_and_entries_that_agree() {
    let mut server = Postgres::start();
    let url = server.url();
    let store = open(&url).await;
    for round in 0..3 {
        let tasks: Vec<_> = (0..16).map(|_| tokio::spawn(work(store.clone()))).collect();
        end_sessions(&server, 20).await;
        if round < 2 {
            server.kill();
            server.start_again();
        }
        tasks.iter().for_each(JoinHandle::abort);
    }
    store.close().await;
    let store = open(&url).await;
    assert!(agree(&store).await > 100);
}

async fn end_sessions(server: &Postgres, times: usize) {
    let beside = connect(&server.url()).await;
    let mut ended = 0;
    while ended < times {
        tokio::time::sleep(Duration::from_millis(25)).await;
        let row = beside.query_opt(END_ONE, &[]).await.unwrap();
        ended += usize::from(row.is_some());
    }
}

const END_ONE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'onlyonce' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1";

/// The commit is made, and its reply never comes: the repeated call finds its work done, and adds no second entry.
#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_told_once() {
    let server = Postgres::start();
    let url = server.url();
    let (store, beside) = (open(&url).await, connect(&url).await);
    let audit = store.audit().unwrap();
    for number in 0..5 {
        let first = draft();
        audit.claim(first.clone(), note(Claimed, first.id)).await.unwrap();
        // Nobody is this standby: a commit waits for it until its session is ended.
        set_standby(&beside, "nobody").await;
        await_commits_that_wait(&url, &beside).await;
        let (second, told) = (draft(), Arc::new(tokio::sync::Notify::new()));
        let (claimed, said) = (store.clone(), told.clone());
        let waits = second.clone();
        let claim = tokio::spawn(async move {
            let audit = claimed.audit().unwrap();
            let answer = audit.claim(waits.clone(), note(Claimed, waits.id)).await;
            said.notify_one();
            answer
        });
        end_the_one_that_waits(&beside, "onlyonce").await;
        told.notified().await;
        let lost = claim.await.unwrap();
        assert!(matches!(lost, Err(Fault::Unsure(_))), "{number}: {lost:?}");
        set_standby(&beside, "").await;
        let again = until_sure(&store, &second).await;
        assert!(again, "the first copy was committed, so the second finds its own record");
    }
    let entries = all(&store).await;
    assert_eq!(entries.len(), 10, "{entries:#?}");
    assert_eq!(faults(&store).await, 0);
}

async fn until_sure(store: &PostgresStore, draft: &onlyonce::store::Draft) -> bool {
    for _ in 0..500 {
        let claimed = note(Claimed, draft.id);
        if let Ok(seen) = store.audit().unwrap().claim(draft.clone(), claimed).await {
            return seen.mine;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the store does not answer");
}

async fn set_standby(beside: &tokio_postgres::Client, name: &str) {
    beside
        .batch_execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"))
        .await
        .unwrap();
    beside.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    // The sessions take it up between two statements; the server's own process tells when it has.
    for _ in 0..500 {
        let row = beside.query_one("SHOW synchronous_standby_names", &[]).await.unwrap();
        if row.get::<_, String>(0) == name {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the server does not read its settings");
}

/// One process of the server tells all sessions that their commits wait, and does so a moment after it was told itself.
async fn await_commits_that_wait(url: &str, beside: &tokio_postgres::Client) {
    for _ in 0..500 {
        let session = connect(url).await;
        let write = "CREATE TABLE IF NOT EXISTS probe (); INSERT INTO probe DEFAULT VALUES";
        tokio::select! {
            _ = session.batch_execute(write) => {}
            () = end_the_one_that_waits(beside, "") => return,
        }
    }
    panic!("commits do not wait for a standby");
}

/// The session of this application.
async fn end_the_one_that_waits(beside: &tokio_postgres::Client, application: &str) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE wait_event = 'SyncRep' AND application_name = $1";
    for _ in 0..500 {
        if beside.query_opt(sql, &[&application]).await.unwrap().is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no commit waits for a standby");
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn a_page_of_a_key_and_of_an_operation_is_found_among_all_writers() {
    let server = Postgres::start();
    let lab = lab(&server.url()).await;
    fill(&lab).await;
    let operations = lab.once.operations();
    let every = operations.audit(EntryQuery::all(1_000)).await.unwrap().entries;
    let mut query = EntryQuery::all(3);
    let mut paged = Vec::new();
    loop {
        let page = operations.audit(query).await.unwrap();
        paged.extend(page.entries);
        query.after = page.next.map(|next| next.to_string().parse().unwrap());
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(paged, every);
    let id = every[0].note.id;
    let of_id = operations.audit(EntryQuery { id, ..EntryQuery::all(1_000) }).await.unwrap();
    let expected = every.iter().filter(|entry| entry.note.id == id).count();
    assert_eq!(of_id.entries.len(), expected);
}
