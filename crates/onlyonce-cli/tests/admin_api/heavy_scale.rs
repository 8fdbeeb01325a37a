//! With a million records the first view, a look-up and a list take less than ten times what they take with a thousand.
//! In the full tier only.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use onlyonce::clock::{Clock, StoreTime, SystemClock};
use onlyonce::record::{Kept, KeyText, Response, SettledBy, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::store::{Draft, Guard, Lease, Next, Store};
use servers::Postgres;

use crate::lab::Lab;

const MANY: usize = 1_000_000;
const FEW: usize = 1_000;
const AT_ONCE: usize = 2_000;

fn is_full() -> bool {
    std::env::var("ONLYONCE_TEST_TIER").as_deref() == Ok("full")
}

#[test]
fn sqlite_answers_operators_as_fast_with_a_million_records() {
    if !is_full() {
        return eprintln!("only in the full tier: ONLYONCE_TEST_TIER=full");
    }
    let [few, many] = [FEW, MANY].map(|records| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.db");
        block_on(async {
            let store = SqliteStore::open(&file).await.unwrap();
            fill(&store, records).await;
            store.close().await;
        });
        measured(&format!("sqlite:{}", file.display()))
    });
    compare(&few, &many);
}

#[test]
fn postgres_answers_operators_as_fast_with_a_million_records() {
    if !is_full() {
        return eprintln!("only in the full tier: ONLYONCE_TEST_TIER=full");
    }
    let postgres = Postgres::start();
    let [few, many] = [FEW, MANY].map(|records| {
        let url = postgres.database();
        block_on(async { fill(&PostgresStore::open(&url).await.unwrap(), records).await });
        measured(&url)
    });
    compare(&few, &many);
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}

/// Completed records, and ten unknown ones among them.
async fn fill(store: &impl Store, records: usize) {
    let now = SystemClock.wall();
    let numbers = stream::iter(0..records)
        .map(|number| one(store, number, number % (records / 10) == 0, now));
    numbers.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

async fn one(store: &impl Store, number: usize, is_unknown: bool, now: StoreTime) {
    let key = format!("order-{number}");
    let id = id(&key);
    let token = Token::random();
    let draft = Draft {
        id,
        token,
        key: KeyText::new(key),
        fingerprint: onlyonce::fingerprint::Fingerprint {
            version: 1,
            canonical: [0; 32],
            raw: [0; 32],
        },
        principal: Principal::anonymous(),
        route: Arc::from("default"),
        target: Arc::from(""),
        lease: Lease::new(Duration::from_secs(600)),
        quiet_ms: 1_000,
        ttl_ms: 86_400_000,
        not_after: now.plus(Duration::from_secs(3_600)),
    };
    store.claim(draft).await.unwrap();
    let body = Kept::Bytes { body: Bytes::from_static(b"charged"), trailers: None };
    let response =
        Arc::new(Response { status: StatusCode::CREATED, headers: HeaderMap::new(), body });
    let to = match is_unknown {
        true => Next::Unknown { since: None },
        false => Next::Completed { settled_by: SettledBy::Owner, response, token: None },
    };
    let guard = Guard::Owner { token, states: StateSet::of(&[StateKind::Running]) };
    store.swap(id, guard, to).await.unwrap();
}

/// An id as the gateway would make it, as far as the look-up by key goes.
fn id(key: &str) -> OperationId {
    let mut id = *onlyonce::scope::IdPrefix::of_key(None, key).first_id().as_bytes();
    let rest = Principal::of("id", key.as_bytes());
    id[4..].copy_from_slice(&rest.as_bytes()[..12]);
    OperationId::from_bytes(id)
}

/// The best of several tries of each question: what the machine does besides is not measured.
fn measured(store: &str) -> [(&'static str, Duration); 3] {
    let lab = Lab::with(&format!("store = \"{store}\""), "", "");
    let questions = [
        ("summary", "summary"),
        ("look-up", "operations?key=order-7"),
        ("list", "operations?state=unknown"),
    ];
    questions.map(|(name, path)| {
        let tries = (0..TRIES).map(|_| {
            // The census is kept for a second.
            std::thread::sleep(Duration::from_millis(1_050));
            let began = SystemClock.boot();
            let answer = lab.get(path);
            let took = SystemClock.boot() - began;
            assert!(
                name != "look-up" || answer["operations"].as_array().unwrap().len() == 1,
                "{answer}"
            );
            assert!(
                name != "list" || answer["operations"].as_array().unwrap().len() == 10,
                "{answer}"
            );
            took
        });
        (name, tries.min().unwrap())
    })
}

fn compare(few: &[(&str, Duration); 3], many: &[(&str, Duration); 3]) {
    for ((name, few), (_, many)) in few.iter().zip(many) {
        eprintln!("{name}: {few:?} with {FEW} records, {many:?} with {MANY}");
        // Below a millisecond it is the machine that is measured.
        assert!(*many < 10 * (*few).max(Duration::from_millis(1)), "{name}: {few:?} {many:?}");
    }
}

const TRIES: usize = 5;
