//! The Postgres store passes the whole suite on a real server: crashes, damage and `kill -9` included.

use std::sync::atomic::{AtomicUsize, Ordering};

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::scope::OperationId;
use onlyonce::store::conformance::durability::{check, child, kill_after, write_until_killed};
use onlyonce::store::conformance::{Factory, Fresh, exercise};
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use servers::Postgres;

/// Every store in a schema of its own; cases run one after the other, so the last is the one at hand.
struct Schemas {
    postgres: Postgres,
    url: String,
    /// Where the test itself goes.
    plain: String,
    last: AtomicUsize,
    damages: AtomicUsize,
    rounds: usize,
}

impl Schemas {
    fn new(rounds: usize) -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        let (last, damages) = Default::default();
        Self { postgres, plain: url.clone(), url, last, damages, rounds }
    }

    /// In a database where the schema that stands first in the search path has something hostile of every name.
    fn hostile() -> Self {
        let schemas = Self::new(1);
        let url = schemas.postgres.make_hostile(&schemas.plain);
        Self { url, ..schemas }
    }

    fn schema(&self) -> String {
        format!("suite {}", self.last.load(Ordering::Relaxed))
    }

    async fn open(&self) -> PostgresStore {
        let options = PostgresOptions::new().with_schema(self.schema());
        PostgresStore::open_with(&self.url, options).await.expect("the store opens")
    }

    /// Changes a column behind the store's back: another state, another format, another attempt.
    fn damage_row(&self, id: OperationId) {
        let schema = self.schema();
        let nth = self.damages.fetch_add(1, Ordering::Relaxed);
        let (constraint, change) = [
            ("record_state_check", "state = state + 5"),
            ("record_format_check", "format = 77"),
            ("record_state_check", "state = -1"),
        ][nth % 3];
        let drops = [
            "running_has_a_lease",
            "unknown_has_a_since",
            "final_expires",
            "completed_has_a_response",
        ];
        let drops: String =
            drops.iter().map(|name| format!(", DROP CONSTRAINT IF EXISTS {name}")).collect();
        let statements = format!(
            "ALTER TABLE \"{schema}\".record DROP CONSTRAINT IF EXISTS {constraint}{drops};
             UPDATE \"{schema}\".record SET {change} WHERE id = '{id}' RETURNING 1"
        );
        assert_eq!(self.postgres.sql(&self.plain, &statements), "1", "one row is damaged");
    }
}

impl Factory for Schemas {
    type Store = PostgresStore;

    async fn fresh(&self) -> Fresh<PostgresStore> {
        self.last.fetch_add(1, Ordering::Relaxed);
        let store = self.open().await;
        Fresh::new(store)
    }

    async fn crash(&self, store: PostgresStore) -> Option<PostgresStore> {
        drop(store);
        Some(self.open().await)
    }

    async fn damage(&self, store: PostgresStore, id: OperationId) -> Option<PostgresStore> {
        self.damage_row(id);
        Some(store)
    }

    fn rounds(&self) -> usize {
        self.rounds
    }
}

fn rounds() -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { 100 } else { 8 }
}

// threats B2, B12, C6, I6, J11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_passes_every_case() {
    let start = SystemClock.boot();
    let report = exercise(&Schemas::new(rounds())).await;
    println!("{report}, in {:?}", SystemClock.boot() - start);
    report.assert_passed();
    let skipped: Vec<_> = report.skipped().collect();
    // These move the clock of the node; `postgres_faults` sets the server's own, which a node may see run backward.
    let by_clock = [
        "a_claim_at_its_not_after_is_in_time",
        "time_does_not_run_backward_when_the_clock_is_set_back",
    ];
    assert_eq!(skipped, by_clock, "nothing else is declared absent");
}

// threat K19
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_of_the_search_path_is_called() {
    let schemas = Schemas::hostile();
    exercise(&schemas).await.assert_passed();
    assert!(!schemas.postgres.has_caught(&schemas.plain));
}

// threat A14
#[tokio::test]
async fn what_was_answered_before_a_kill_is_there_after_it() {
    let postgres = Postgres::start();
    for acks in [1, 10, 100, 1_000] {
        let url = postgres.database();
        let mut child = child("the_child_that_writes").expect("this binary is there");
        child.env(URL, &url);
        let acked = kill_after(child, acks).expect("the child reports its writes");
        assert!(acked.count() >= acks);
        let store = PostgresStore::open(&url).await.expect("the store opens after a kill");
        check(&store, &acked).await.expect("nothing is lost");
    }
}

#[tokio::test]
#[ignore = "a child of the test above"]
async fn the_child_that_writes() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let store = PostgresStore::open(&url).await.expect("the store opens");
    let Err(why) = write_until_killed(store, std::io::stdout()).await;
    panic!("the child ended: {why}");
}

const URL: &str = "ONLYONCE_CONFORMANCE_POSTGRES";
