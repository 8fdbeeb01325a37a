//! A file with messages.

use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use onlyonce::Operation;
use onlyonce::outbox::{Relay, RelayOptions, Sink};
use onlyonce::scope::Principal;
use onlyonce::transaction::{Begun, Reply, SqliteTx, Transactions};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::book::{LOOK_PAUSE, Running, WAIT_MAX};

pub(crate) struct Lab {
    directory: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Self { directory: tempfile::tempdir().unwrap() };
        Transactions::new().prepare(&lab.open()).unwrap();
        lab
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    pub(crate) fn open(&self) -> Connection {
        let db = Connection::open(self.path()).unwrap();
        db.busy_timeout(Duration::from_secs(30)).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
        db
    }

    /// Commits an operation with one message; its id.
    pub(crate) fn add(&self, topic: &str, key: Option<&str>, payload: &str) -> String {
        add(&mut self.open(), topic, key, payload)
    }

    pub(crate) async fn relay<S: Sink>(&self, sink: S, options: RelayOptions) -> Running {
        Running::start(Relay::open_sqlite_with(self.path(), sink, options).await.unwrap())
    }

    pub(crate) fn sql(&self, statement: &str) {
        self.open().execute_batch(statement).unwrap();
    }

    /// The first row of what `statement` finds, with bars in between.
    pub(crate) fn row(&self, statement: &str) -> String {
        let db = self.open();
        let mut statement = db.prepare(statement).unwrap();
        let columns = statement.column_count();
        let row = statement.query_row([], |row| {
            let values = (0..columns).map(|column| row.get::<_, rusqlite::types::Value>(column));
            values.collect::<Result<Vec<_>, _>>()
        });
        let text = |value| match value {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => format!("{other:?}"),
        };
        row.unwrap().into_iter().map(text).collect::<Vec<_>>().join("|")
    }

    /// Waits until `statement` says `expected`.
    pub(crate) async fn until(&self, statement: &str, expected: &str) {
        let wait = async {
            while self.row(statement) != expected {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        let in_time = tokio::time::timeout(WAIT_MAX, wait).await;
        assert!(in_time.is_ok(), "{statement}: {}, not {expected}", self.row(statement));
    }
}

pub(crate) fn add(db: &mut Connection, topic: &str, key: Option<&str>, payload: &str) -> String {
    let tx = begin(db);
    let id = tx.outbox(topic, key, payload.as_bytes()).unwrap();
    tx.complete(Reply::new(StatusCode::CREATED, "done")).unwrap();
    id
}

/// Begins an operation with a key of its own.
pub(crate) fn begin(db: &mut Connection) -> SqliteTx<'_> {
    let key = format!("{:032x}", rand());
    let operation = Operation::new("POST /charges", Principal::of("account", b"acct_1"), &key);
    let operation = operation.unwrap().with_payload(&7998).unwrap();
    match Transactions::new().begin_in(db, &operation).unwrap() {
        Begun::Mine(tx) => tx,
        other => panic!("{other:?}"),
    }
}

fn rand() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let half = || u128::from(RandomState::new().hash_one(0));
    half() << 64 | half()
}

/// The tier's count: all of it, or about a tenth.
pub(crate) fn tiered(full: usize) -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { full } else { full.div_ceil(10) }
}

pub(crate) const COUNT: &str = "SELECT count(*) FROM onlyonce_outbox";
