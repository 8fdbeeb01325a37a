//! The move from SQLite to Postgres: every live record arrives, and the old file is refused afterwards.

use std::collections::HashMap;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use onlyonce::clock::StoreTime;
use onlyonce::fingerprint::{Fingerprint, FingerprintRules, Subject};
use onlyonce::record::{
    Kept, KeyText, Record, Response, Revision, SettledBy, State, StateKind, StateSet, Token,
};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::postgres::{Import, PostgresStore};
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::store::{Draft, Guard, Lease, Maintain, Next, Scan, Store, Swap};
use proof::client::post;
use proof::tier::tiered;
use servers::Postgres;
use tokio::process::Command;
use tokio::task::block_in_place;

use crate::BODY;
use crate::gateway::{Gateway, store};
use crate::upstream::{QUICK, Upstream};

/// Operations of clients, before and after.
const CLIENTS: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_to_postgres_loses_no_live_record_and_ends_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let mut gateway = Gateway::start(folder.path(), upstream.address).await;
    let mut answers = Vec::new();
    for n in 0..CLIENTS {
        let answer = post(gateway.address, QUICK, &format!("before-{n}"), BODY).await.unwrap();
        answers.push(answer.body);
    }
    gateway.terminate();
    gateway.ended().await;
    let filled = fill(folder.path(), tiered(100_000)).await;

    let postgres = block_in_place(Postgres::start);
    let database = block_in_place(|| postgres.database());
    let from = format!("sqlite:{}", store(folder.path()).display());
    let moved = migrate(&from, &database).await;
    assert!(moved.status.success(), "{moved:?}");
    println!("{}", String::from_utf8_lossy(&moved.stdout).trim());
    judge(&filled, &arrived(&database).await);

    let other = tempfile::tempdir().unwrap();
    let top = format!("store = \"{database}\"");
    let gateway = Gateway::with_top(other.path(), upstream.address, &top, "").await;
    for (n, body) in answers.into_iter().enumerate() {
        // The host is part of an operation, its port is not.
        let again = post(gateway.address, QUICK, &format!("before-{n}"), BODY).await.unwrap();
        assert!(again.is_replay(), "{again:?}");
        assert_eq!(again.body, body);
    }
    post(gateway.address, QUICK, "after", BODY).await.unwrap();
    let again = post(gateway.address, QUICK, "after", BODY).await.unwrap();
    assert!(again.is_replay());

    assert_refused(&serve(&from).await, "was moved to postgres://");
    assert_refused(&migrate(&from, &database).await, "has records already");
    assert_refused(&migrate("sqlite:/no/such.db", &database).await, "does not exist");
}

/// What an interruption leaves at each step, and that the same command ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_was_interrupted_is_refused_to_gateways_and_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let filled = fill(folder.path(), 300).await;
    let postgres = block_in_place(Postgres::start);
    let database = block_in_place(|| postgres.database());
    let from = format!("sqlite:{}", store(folder.path()).display());

    // Of some of them the file knows more by now: a gateway used it after the interruption.
    let earlier = |(n, (id, record)): (usize, (&OperationId, &Record))| {
        let mut record = record.clone();
        if n.is_multiple_of(2) {
            (record.token, record.key) = (Token::random(), KeyText::new("earlier"));
        }
        (*id, record)
    };
    let half: Vec<_> = filled.iter().take(100).enumerate().map(earlier).collect();
    Import::begin(&database, &from).await.unwrap().import(&half).await.unwrap();
    assert_refused(&serve(&database).await, "is being filled from sqlite:");
    let other = Import::begin(&database, "sqlite:another.db").await;
    assert!(other.is_err_and(|error| error.to_string().contains("is being filled from")));

    assert!(migrate(&from, &database).await.status.success());
    judge(&filled, &arrived(&database).await);
    let again = Import::begin(&database, "sqlite:another.db").await;
    assert!(again.is_err_and(|error| error.to_string().contains("has records already")));

    // Right before its end: the file is marked, and the schema is not released.
    let mark = format!("UPDATE onlyonce.meta SET imported_from = '{from}'");
    block_in_place(|| postgres.sql(&database, &mark));
    assert_refused(&serve(&database).await, "is being filled from sqlite:");
    assert_refused(&serve(&from).await, "was moved to postgres://");
    assert!(migrate(&from, &database).await.status.success());
    judge(&filled, &arrived(&database).await);
}

fn assert_refused(output: &Output, because: &str) {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(because), "{said}");
}

/// Completed, unknown and released records, and some that have expired.
async fn fill(folder: &std::path::Path, count: usize) -> HashMap<OperationId, Record> {
    let store = SqliteStore::open(store(folder)).await.unwrap();
    let numbers = stream::iter(0..count).map(|n| put(&store, n)).buffer_unordered(1_000);
    numbers.for_each(|()| std::future::ready(())).await;
    let records = all(&store).await.into_iter().filter(|(_, record)| record.ttl_ms != SHORT_MS);
    let records = records.collect();
    store.close().await;
    records
}

async fn put(store: &SqliteStore, n: usize) {
    let draft = draft(n);
    let (id, token) = (draft.id, draft.token);
    let seen = store.claim(draft).await.unwrap();
    assert!(seen.mine);
    let owner = |states| Guard::Owner { token, states: StateSet::of(states) };
    let unknown = Next::Unknown { since: None };
    match n % 10 {
        0 => swap(store, id, owner(&[StateKind::Running]), unknown).await,
        1 => {
            swap(store, id, owner(&[StateKind::Running]), unknown).await;
            let guard = Guard::Unchanged(Revision { token, count: seen.record.unwrap().count + 1 });
            swap(store, id, guard, Next::Released { expires_at: None }).await;
        }
        _ => {
            let response = Arc::new(Response {
                status: StatusCode::CREATED,
                headers: HeaderMap::new(),
                body: Kept::Bytes { body: Bytes::from(format!("answer {n}")), trailers: None },
            });
            let to = Next::Completed { settled_by: SettledBy::Owner, response, token: None };
            swap(store, id, owner(&[StateKind::Running]), to).await;
        }
    }
}

async fn swap(store: &SqliteStore, id: OperationId, guard: Guard, to: Next) {
    let swapped = store.swap(id, guard, to).await.unwrap();
    assert!(matches!(swapped, Swap::Done(_)), "{swapped:?}");
}

/// One in a hundred has a time to live that is over when it is moved.
const SHORT_MS: i64 = 1;

fn draft(n: usize) -> Draft {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&(n as u64).to_be_bytes());
    let headers = HeaderMap::new();
    let subject =
        Subject { method: "POST", path: "/charges", query: None, headers: &headers, body: &id };
    Draft {
        id: OperationId::from_bytes(id),
        token: Token::random(),
        key: KeyText::new(format!("key-{n}")),
        fingerprint: Fingerprint::of(&FingerprintRules::default(), &subject),
        principal: Principal::of("test", b"somebody"),
        route: "POST /charges".into(),
        target: "api.test/charges".into(),
        lease: Lease::new(Duration::from_secs(30)),
        quiet_ms: 60_000,
        ttl_ms: if n % 100 == 99 { SHORT_MS } else { 3_600_000 },
        not_after: StoreTime::MAX,
    }
}

async fn all(store: &impl Maintain) -> Vec<(OperationId, Record)> {
    let (mut records, mut after) = (Vec::new(), None);
    loop {
        let states = StateSet::of(&StateKind::ALL);
        let mut page = store.scan(Scan { states, after, limit: 1_000 }).await.unwrap();
        records.append(&mut page.records);
        after = page.next;
        if after.is_none() {
            return records;
        }
    }
}

async fn arrived(database: &str) -> HashMap<OperationId, Record> {
    let store = PostgresStore::open(database).await.unwrap();
    let records = all(&store).await.into_iter().collect();
    store.close().await;
    records
}

/// All but the times are as they were; those were told by another clock.
fn judge(filled: &HashMap<OperationId, Record>, arrived: &HashMap<OperationId, Record>) {
    let mut kinds = HashMap::<_, usize>::new();
    for (id, record) in filled {
        let found = arrived.get(id).unwrap_or_else(|| panic!("{id:?} is lost"));
        let same_times = Record {
            first_claimed_at: record.first_claimed_at,
            state: at_time_of(found, record),
            ..found.clone()
        };
        assert_eq!(&same_times, record);
        *kinds.entry(format!("{:?}", record.state.kind())).or_default() += 1;
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    println!("{kinds:?} arrived as they were");
}

/// The state that was found, with the time that it had; the two clocks differ by little.
fn at_time_of(found: &Record, before: &Record) -> State {
    let near = |a: StoreTime, b: StoreTime| {
        assert!(a.since_ms(b).abs() < 60_000, "{a:?}, {b:?}");
        b
    };
    match (found.state.clone(), &before.state) {
        (State::Unknown { since }, State::Unknown { since: at }) => {
            State::Unknown { since: near(since, *at) }
        }
        (State::Released { expires_at }, State::Released { expires_at: at }) => {
            State::Released { expires_at: near(expires_at, *at) }
        }
        (
            State::Completed { expires_at, settled_by, response },
            State::Completed { expires_at: at, .. },
        ) => State::Completed { expires_at: near(expires_at, *at), settled_by, response },
        (found, _) => found,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_records_to_move_it_makes_tables_and_functions() {
    let postgres = block_in_place(Postgres::start);
    let database = block_in_place(|| postgres.database());
    for _ in 0..2 {
        let made = onlyonce(&["migrate", "--to", &database]).await;
        assert!(made.status.success(), "{made:?}");
        let told = String::from_utf8(made.stdout).unwrap();
        assert!(told.contains("has the tables and functions of onlyonce"), "{told}");
    }
    let begin = "BEGIN; SELECT outcome FROM onlyonce.begin('s', 'p', 'k', '\\x01'); ROLLBACK";
    assert!(block_in_place(|| postgres.sql(&database, begin)).contains("mine"));
    assert_eq!(onlyonce(&["migrate", "--to", "sqlite:other.db"]).await.status.code(), Some(2));
}

async fn migrate(from: &str, to: &str) -> Output {
    onlyonce(&["migrate", "--from", from, "--to", to]).await
}

async fn serve(store: &str) -> Output {
    let upstream = "http://127.0.0.1:9";
    onlyonce(&["serve", "--listen", "127.0.0.1:0", "--upstream", upstream, "--store", store]).await
}

async fn onlyonce(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onlyonce")).args(args).output().await.unwrap()
}
