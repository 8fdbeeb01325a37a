//! The Redis store passes the whole suite, on the server's clock: crashes, damage and `kill -9` included.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::scope::OperationId;
use onlyonce::store::conformance::durability::{check, child, kill_after, write_until_killed};
use onlyonce::store::conformance::{Factory, Fresh, exercise};
use onlyonce::store::redis::{RedisOptions, RedisStore};
use servers::Redis;

/// One server, and a prefix for every store; cases run one after the other, so the last is the one at hand.
struct Prefixes {
    server: Redis,
    count: AtomicUsize,
    last: Mutex<RedisOptions>,
    rounds: usize,
}

impl Prefixes {
    fn new() -> Self {
        let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
        let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
        let rounds = if is_full { 100 } else { 8 };
        let (count, last) = (AtomicUsize::new(0), Mutex::default());
        Self { server, count, last, rounds }
    }

    async fn open(&self) -> RedisStore {
        let options = self.last.lock().unwrap().clone();
        RedisStore::open_with(&self.server.url(), options).await.expect("the store opens")
    }

    fn prefix(&self) -> String {
        format!("case-{}", self.count.load(Ordering::Relaxed))
    }
}

impl Factory for Prefixes {
    type Store = RedisStore;

    async fn fresh(&self) -> Fresh<RedisStore> {
        self.count.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap() = RedisOptions::new().with_prefix(self.prefix());
        Fresh::new(self.open().await)
    }

    async fn crash(&self, store: RedisStore) -> Option<RedisStore> {
        drop(store);
        Some(self.open().await)
    }

    /// Another byte of the value for each store, so that all of them are damaged by some case or other.
    async fn damage(&self, store: RedisStore, id: OperationId) -> Option<RedisStore> {
        let number = u128::from_be_bytes(*id.as_bytes());
        let key = format!("{}:{number:032x}", self.prefix());
        let client = redis::Client::open(self.server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut get = redis::cmd("GET");
        let mut value: Vec<u8> = get.arg(&key).query_async(&mut connection).await.unwrap();
        let at = self.count.load(Ordering::Relaxed) * 37 % value.len();
        value[at] ^= 0x20;
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(value).exec_async(&mut connection).await.unwrap();
        Some(store)
    }

    fn rounds(&self) -> usize {
        self.rounds
    }
}

// threats B2, B12, D4, D5, I6, J11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_passes_on_its_own_clock() {
    let start = SystemClock.boot();
    let report = exercise(&Prefixes::new()).await;
    println!("{report}, in {:?}", SystemClock.boot() - start);
    report.assert_passed();
    assert_eq!(report.skipped().collect::<Vec<_>>(), SKIPPED);
}

// threat A14
#[tokio::test]
async fn what_was_answered_before_a_kill_of_the_node_is_there_after_it() {
    for acks in [1, 10, 100, 1_000] {
        let server = Redis::start(&[]);
        let mut child = child("the_child_that_writes").expect("this binary is there");
        child.env(URL, server.url());
        let acked = kill_after(child, acks).expect("the child reports its writes");
        assert!(acked.count() >= acks);
        let store = RedisStore::open(&server.url()).await.expect("the store opens after a kill");
        check(&store, &acked).await.expect("nothing is lost");
    }
}

#[tokio::test]
#[ignore = "a child of the test above"]
async fn the_child_that_writes() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let store = RedisStore::open(&url).await.expect("the store opens");
    let Err(why) = write_until_killed(store, std::io::stdout()).await;
    panic!("the child ended: {why}");
}

/// The clock of a Redis cannot be moved, and it deletes expired records by itself.
const SKIPPED: [&str; 7] = [
    "a_claim_at_its_not_after_is_in_time",
    "time_does_not_run_backward_when_the_clock_is_set_back",
    "an_expired_record_is_there_until_it_is_swept",
    "a_sweep_goes_by_the_moment_it_is_given",
    "a_sweep_deletes_no_more_than_its_limit",
    "a_sweep_says_whether_more_had_expired",
    "a_taken_record_survives_the_sweep_that_races_it",
];
const URL: &str = "ONLYONCE_CONFORMANCE_REDIS";
