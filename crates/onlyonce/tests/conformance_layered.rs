//! The layered store passes the whole suite, and goes on passing it while Redis is killed, flushed or hung.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::scope::OperationId;
use onlyonce::store::conformance::{Factory, Fresh, ManualClock, exercise};
use onlyonce::store::layered::{Layered, LayeredOptions};
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::sqlite::{SqliteOpenError, SqliteOptions, SqliteStore};
use rusqlite::Connection;
use servers::{Postgres, Redis};

/// SQLite decides; its clock and the filter's are one.
struct Both {
    url: String,
    /// How long a new store waits for Redis.
    patience: Duration,
    count: AtomicUsize,
    last: Mutex<Option<Home>>,
}

struct Home {
    folder: tempfile::TempDir,
    clock: ManualClock,
}

impl Both {
    fn new(url: String, patience: Duration) -> Self {
        Self { url, patience, count: AtomicUsize::new(0), last: Mutex::default() }
    }

    fn last(&self) -> (PathBuf, ManualClock) {
        let last = self.last.lock().unwrap();
        let home = last.as_ref().expect("a store was made");
        (home.folder.path().join("onlyonce.db"), home.clock.clone())
    }

    fn prefix(&self) -> String {
        format!("case-{}", self.count.load(Ordering::Relaxed))
    }

    async fn open(&self) -> Layered<SqliteStore> {
        let (path, clock) = self.last();
        let authority = opened(&path, &clock).await;
        let options = LayeredOptions::new().with_prefix(self.prefix()).with_clock(clock);
        let store = Layered::new(authority, &self.url, options).unwrap();
        let start = SystemClock.boot();
        while !store.is_filter_up() && SystemClock.boot() - start < self.patience {
            tokio::task::yield_now().await;
        }
        store
    }
}

/// The thread of the filter that was dropped may hold the file for a moment longer.
async fn opened(path: &Path, clock: &ManualClock) -> SqliteStore {
    let start = SystemClock.boot();
    loop {
        let options = SqliteOptions::new().with_clock(clock.clone());
        match SqliteStore::open_with(path, options).await {
            Err(SqliteOpenError::InUse { .. }) if SystemClock.boot() - start < LET_GO_WAIT_MAX => {
                tokio::task::yield_now().await;
            }
            opened => return opened.expect("the store opens"),
        }
    }
}

const LET_GO_WAIT_MAX: Duration = Duration::from_secs(10);

impl Factory for Both {
    type Store = Layered<SqliteStore>;

    async fn fresh(&self) -> Fresh<Self::Store> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        *self.last.lock().unwrap() = Some(Home { folder, clock: clock.clone() });
        Fresh::new(self.open().await).with_clock(clock)
    }

    async fn crash(&self, store: Self::Store) -> Option<Self::Store> {
        drop(store);
        Some(self.open().await)
    }

    /// The row of the authority, and the copy of it: a copy that is whole may be replayed.
    async fn damage(&self, store: Self::Store, id: OperationId) -> Option<Self::Store> {
        store.authority().close().await;
        drop(store);
        damage_row(&self.last().0, id);
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(self.open().await)
    }
}

fn damage_row(path: &PathBuf, id: OperationId) {
    let file = Connection::open(path).unwrap();
    let mut tables =
        file.prepare("SELECT name FROM sqlite_master WHERE name GLOB 'record_*'").unwrap();
    let names = tables.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
    for name in names {
        let sql = format!("UPDATE {name} SET attempt = attempt + 1 WHERE id = ?1");
        file.execute(&sql, [id.as_bytes()]).unwrap();
    }
}

async fn passes(both: &Both) {
    let start = SystemClock.boot();
    let report = exercise(both).await;
    println!("{report}, in {:?}", SystemClock.boot() - start);
    report.assert_passed();
    assert_eq!(report.skipped().count(), 0, "nothing is declared absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn layered_passes_every_case() {
    let server = Redis::start(&[]);
    passes(&Both::new(server.url(), Duration::from_secs(5))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn layered_passes_without_any_redis() {
    let mut server = Redis::start(&[]);
    server.kill();
    passes(&Both::new(server.url(), Duration::ZERO)).await;
}

// threats D9, D10
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn layered_passes_while_redis_hangs_is_flushed_and_is_killed_now_and_then() {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    let all: [fn(&mut Redis); 3] = [hang, flush, kill];
    // In the full tier each of them alone, in the fast tier in turn.
    match is_full {
        true => {
            for one in all {
                passes_under(&[one]).await;
            }
        }
        false => passes_under(&all).await,
    }
}

fn hang(server: &mut Redis) {
    server.pause();
    std::thread::sleep(Duration::from_millis(120));
    server.resume();
}

fn flush(server: &mut Redis) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
}

fn kill(server: &mut Redis) {
    server.kill();
    server.start_again();
}

/// The suite, while the misfortunes befall Redis in turn, again and again.
async fn passes_under(misfortunes: &[fn(&mut Redis)]) {
    let mut server = Redis::start(&[]);
    let both = Both::new(server.url(), Duration::from_millis(200));
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, misfortunes) = (is_over.clone(), misfortunes.to_vec());
    let fate = std::thread::spawn(move || {
        let mut blows = 0;
        for misfortune in misfortunes.iter().cycle() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            misfortune(&mut server);
            blows += 1;
            std::thread::sleep(Duration::from_millis(30));
        }
        blows
    });
    passes(&both).await;
    is_over.store(true, Ordering::Relaxed);
    assert!(fate.join().unwrap() > BLOWS_MIN, "it befell Redis while the suite ran");
}

/// Each misfortune comes several times.
const BLOWS_MIN: usize = 12;

/// Postgres decides, as in a fleet; each store in a schema of its own.
struct OverPostgres {
    postgres: Postgres,
    redis: String,
    count: AtomicUsize,
}

impl OverPostgres {
    async fn open(&self) -> Layered<PostgresStore> {
        let name = format!("case_{}", self.count.load(Ordering::Relaxed));
        let url = format!("{}?schema={name}", self.postgres.url());
        let authority = PostgresStore::open(&url).await.expect("the store opens");
        Layered::new(authority, &self.redis, LayeredOptions::new().with_prefix(name)).unwrap()
    }
}

impl Factory for OverPostgres {
    type Store = Layered<PostgresStore>;

    async fn fresh(&self) -> Fresh<Self::Store> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Fresh::new(self.open().await)
    }

    async fn crash(&self, store: Self::Store) -> Option<Self::Store> {
        drop(store);
        Some(self.open().await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layered_passes_over_postgres() {
    let redis = Redis::start(&[]);
    let (postgres, count) = (Postgres::start(), AtomicUsize::new(0));
    let report = exercise(&OverPostgres { postgres, redis: redis.url(), count }).await;
    println!("{report}");
    report.assert_passed();
}
