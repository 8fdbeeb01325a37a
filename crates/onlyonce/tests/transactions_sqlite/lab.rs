//! A file with the tables and a business table.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;
use onlyonce::Operation;
use onlyonce::scope::Principal;
use onlyonce::transaction::{Begun, Reply, SqliteTx, Transactions};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) struct Lab {
    directory: TempDir,
    settings: &'static str,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(WAL)
    }

    pub(crate) fn with(settings: &'static str) -> Self {
        let lab = Self { directory: tempfile::tempdir().unwrap(), settings };
        let db = lab.open();
        Transactions::new().prepare(&db).unwrap();
        db.execute_batch("CREATE TABLE charge (operation TEXT NOT NULL, amount INTEGER NOT NULL)")
            .unwrap();
        lab
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    pub(crate) fn open(&self) -> Connection {
        open(&self.path(), self.settings)
    }

    pub(crate) fn charges(&self) -> i64 {
        self.number("SELECT count(*) FROM charge")
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.open().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

pub(crate) fn open(path: &Path, settings: &str) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(BUSY_TIMEOUT).unwrap();
    db.execute_batch(settings).unwrap();
    db
}

/// Begins an operation that must be the caller's.
pub(crate) fn mine<'a>(db: &'a mut Connection, operation: &Operation) -> SqliteTx<'a> {
    match Transactions::new().begin_in(db, operation).unwrap() {
        Begun::Mine(tx) => tx,
        other => panic!("{other:?}"),
    }
}

/// The answer of an operation that must have been done.
pub(crate) fn replayed(db: &mut Connection, operation: &Operation) -> Reply {
    match Transactions::new().begin_in(db, operation).unwrap() {
        Begun::Replay(reply) => reply,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn insert_charge(tx: &SqliteTx<'_>) {
    tx.execute("INSERT INTO charge VALUES (?1, 7998)", [tx.operation_id()]).unwrap();
}

/// A charge of 7998 with this key.
pub(crate) fn charge(key: &str) -> Operation {
    let account = Principal::of("account", b"acct_1");
    Operation::new("POST /charges", account, key).unwrap().with_payload(&7998).unwrap()
}

pub(crate) fn created() -> Reply {
    Reply::new(StatusCode::CREATED, "charged")
}

/// The tier's count: all of it, or about a tenth.
pub(crate) fn tiered(full: usize) -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { full } else { full.div_ceil(10) }
}

pub(crate) const WAL: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL";
pub(crate) const ROLLBACK_JOURNAL: &str =
    "PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA";
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_millis(200);
