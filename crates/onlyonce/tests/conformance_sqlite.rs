//! The SQLite store passes the whole suite: crashes, damage and `kill -9` included.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::scope::OperationId;
use onlyonce::store::conformance::durability::{check, child, kill_after, write_until_killed};
use onlyonce::store::conformance::{Factory, Fresh, ManualClock, exercise};
use onlyonce::store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

/// Every store in a folder of its own; cases run one after the other, so the last is the one at hand.
#[derive(Default)]
struct Files {
    last: Mutex<Option<Home>>,
    rounds: usize,
}

struct Home {
    folder: tempfile::TempDir,
    clock: ManualClock,
}

impl Home {
    fn path(&self) -> PathBuf {
        self.folder.path().join("onlyonce.db")
    }
}

impl Files {
    fn last(&self) -> (PathBuf, ManualClock) {
        let last = self.last.lock().unwrap();
        let home = last.as_ref().expect("a store was made");
        (home.path(), home.clock.clone())
    }

    async fn open(&self) -> SqliteStore {
        let (path, clock) = self.last();
        let options = SqliteOptions::new().with_clock(clock);
        SqliteStore::open_with(path, options).await.expect("the store opens")
    }
}

impl Factory for Files {
    type Store = SqliteStore;

    async fn fresh(&self) -> Fresh<SqliteStore> {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        *self.last.lock().unwrap() = Some(Home { folder, clock: clock.clone() });
        Fresh::new(self.open().await).with_clock(clock)
    }

    async fn crash(&self, store: SqliteStore) -> Option<SqliteStore> {
        drop(store);
        Some(self.open().await)
    }

    async fn damage(&self, store: SqliteStore, id: OperationId) -> Option<SqliteStore> {
        store.close().await;
        drop(store);
        damage_row(&self.last().0, id);
        Some(self.open().await)
    }

    fn rounds(&self) -> usize {
        self.rounds
    }
}

/// Changes a column behind the store's back.
fn damage_row(path: &Path, id: OperationId) {
    let file = Connection::open(path).unwrap();
    let mut tables =
        file.prepare("SELECT name FROM sqlite_master WHERE name GLOB 'record_*'").unwrap();
    let names = tables.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
    let changed: usize = names
        .map(|name| {
            let sql = format!("UPDATE {name} SET attempt = attempt + 1 WHERE id = ?1");
            file.execute(&sql, [id.as_bytes()]).unwrap()
        })
        .sum();
    assert_eq!(changed, 1, "one row is damaged");
}

// threats B2, B12, I6, J11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_passes_every_case() {
    let start = SystemClock.boot();
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    let files = Files { rounds: if is_full { 100 } else { 8 }, ..Files::default() };
    let report = exercise(&files).await;
    println!("{report}, in {:?}", SystemClock.boot() - start);
    report.assert_passed();
    assert_eq!(report.skipped().count(), 0, "nothing is declared absent");
}

// threat A14
#[tokio::test]
async fn what_was_answered_before_a_kill_is_there_after_it() {
    for acks in [1, 10, 100, 1_000] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("onlyonce.db");
        let mut child = child("the_child_that_writes").expect("this binary is there");
        child.env(PATH, &path);
        let acked = kill_after(child, acks).expect("the child reports its writes");
        assert!(acked.count() >= acks);
        let store = SqliteStore::open(&path).await.expect("the store opens after a kill");
        check(&store, &acked).await.expect("nothing is lost");
    }
}

#[tokio::test]
#[ignore = "a child of the test above"]
async fn the_child_that_writes() {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let store = SqliteStore::open(PathBuf::from(path)).await.expect("the store opens");
    let Err(why) = write_until_killed(store, std::io::stdout()).await;
    panic!("the child ended: {why}");
}

const PATH: &str = "ONLYONCE_CONFORMANCE_SQLITE";
