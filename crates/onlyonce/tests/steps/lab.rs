//! A database with the tables, and what a test looks at.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce::Operation;
use onlyonce::scope::Principal;
use onlyonce::steps::{
    Database, Operators, PgDatabase, PgStep, SqliteDatabase, SqliteStep, Steps, StepsOutcome,
};
use onlyonce::store::BoxError;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::transaction::Reply;
use servers::Postgres;
use sqlx::postgres::PgPoolOptions;
use tempfile::TempDir;

/// One of the two databases, with what tests do to it.
pub(crate) trait Shop: Database {
    /// An effect of a step, in its transaction.
    fn effect(tx: &mut Self::Tx, what: &str) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Ends the transaction of the step, which its work must not do.
    fn commit(tx: &mut Self::Tx) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// A statement that the database refuses.
    fn refused(tx: &mut Self::Tx) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// A message, in the transaction of the step.
    fn message(tx: &mut Self::Tx) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Connects to what [`Lab::address`] names.
    fn connect(address: &str) -> impl Future<Output = Self> + Send;
}

impl Shop for PgDatabase {
    async fn effect(tx: &mut PgStep, what: &str) -> Result<(), BoxError> {
        let insert = sqlx::query("INSERT INTO effect (operation, what) VALUES ($1, $2)");
        insert.bind(tx.operation_id().to_owned()).bind(what.to_owned()).execute(&mut **tx).await?;
        Ok(())
    }

    async fn commit(tx: &mut PgStep) -> Result<(), BoxError> {
        sqlx::query("COMMIT").execute(&mut **tx).await?;
        Ok(())
    }

    async fn refused(tx: &mut PgStep) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO effect VALUES (NULL, NULL)").execute(&mut **tx).await?;
        Ok(())
    }

    async fn message(tx: &mut PgStep) -> Result<(), BoxError> {
        tx.outbox("orders", Some("acct_1"), b"saved").await?;
        Ok(())
    }

    async fn connect(address: &str) -> Self {
        Self::new(PgPoolOptions::new().max_connections(8).connect(address).await.unwrap())
    }
}

impl Shop for SqliteDatabase {
    async fn effect(tx: &mut SqliteStep, what: &str) -> Result<(), BoxError> {
        tx.execute("INSERT INTO effect VALUES (?1, ?2)", [tx.operation_id(), what])?;
        Ok(())
    }

    async fn commit(tx: &mut SqliteStep) -> Result<(), BoxError> {
        Ok(tx.execute_batch("COMMIT")?)
    }

    async fn refused(tx: &mut SqliteStep) -> Result<(), BoxError> {
        Ok(tx.execute_batch("INSERT INTO effect VALUES (NULL, NULL)")?)
    }

    async fn message(tx: &mut SqliteStep) -> Result<(), BoxError> {
        tx.outbox("orders", Some("acct_1"), b"saved")?;
        Ok(())
    }

    async fn connect(address: &str) -> Self {
        Self::new(open(Path::new(address.strip_prefix("sqlite:").unwrap()))).unwrap()
    }
}

fn open(path: &Path) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
    db
}

pub(crate) struct Lab {
    pub(crate) address: String,
    home: Home,
    /// Whether a statement of [`Lab::sql`] must keep to the checks of the tables.
    is_checked: AtomicBool,
}

enum Home {
    Postgres(Box<Postgres>),
    Sqlite(TempDir),
}

impl Lab {
    pub(crate) async fn postgres() -> Self {
        let postgres = Postgres::start();
        let address = postgres.database();
        PostgresStore::open(&address).await.unwrap().close().await;
        let lab =
            Self { address, home: Home::Postgres(Box::new(postgres)), is_checked: true.into() };
        lab.sql("CREATE TABLE effect (operation text NOT NULL, what text NOT NULL)");
        lab
    }

    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.db");
        SqliteDatabase::new(open(&path)).unwrap();
        let address = format!("sqlite:{}", path.display());
        let lab = Self { address, home: Home::Sqlite(directory), is_checked: true.into() };
        lab.sql("CREATE TABLE effect (operation TEXT NOT NULL, what TEXT NOT NULL)");
        lab
    }

    /// A schema is named in Postgres and a prefix in SQLite: `{steps}`, `{point}` and `{outbox}` are the tables.
    pub(crate) fn sql(&self, statement: &str) -> String {
        let filled = |prefix: &str| {
            let tables = ["steps", "point", "outbox"];
            tables.iter().fold(statement.to_owned(), |sql, table| {
                sql.replace(&format!("{{{table}}}"), &format!("{prefix}{table}"))
            })
        };
        match &self.home {
            Home::Postgres(postgres) => postgres.sql(&self.address, &filled("onlyonce.")),
            Home::Sqlite(directory) => {
                let db = open(&directory.path().join("shop.db"));
                let is_unchecked = !self.is_checked.load(Ordering::Relaxed);
                db.pragma_update(None, "ignore_check_constraints", is_unchecked).unwrap();
                let mut statement = db.prepare(&filled("onlyonce_")).unwrap();
                let columns = statement.column_count();
                let mut rows = statement.query([]).unwrap();
                let mut lines = Vec::new();
                while let Some(row) = rows.next().unwrap() {
                    let cell = |column| match row.get_ref(column).unwrap() {
                        rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                        rusqlite::types::ValueRef::Text(text) => {
                            String::from_utf8(text.to_vec()).unwrap()
                        }
                        _ => String::new(),
                    };
                    lines.push((0..columns).map(cell).collect::<Vec<_>>().join("|"));
                }
                lines.join("\n")
            }
        }
    }

    /// Lets rows be what no version has written.
    pub(crate) fn drop_checks(&self) {
        match &self.home {
            Home::Postgres(_) => {
                self.sql(
                    "DO $$ DECLARE c record; BEGIN
                       FOR c IN SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid = 'onlyonce.steps'::regclass
                       LOOP EXECUTE format('ALTER TABLE onlyonce.steps DROP CONSTRAINT %I', c.conname); END LOOP; END $$",
                );
            }
            Home::Sqlite(_) => self.is_checked.store(false, Ordering::Relaxed),
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.home, Home::Postgres(_))
    }

    /// Lets the leases and pauses of all operations be over.
    pub(crate) fn let_time_pass(&self) {
        let past = if self.is_postgres() { "clock_timestamp() - interval '1 s'" } else { "1" };
        self.sql(&format!("UPDATE {{steps}} SET due_at = {past} WHERE due_at IS NOT NULL"));
    }

    /// The effects, each with its count.
    pub(crate) fn effects(&self) -> String {
        self.sql("SELECT what, count(*) FROM effect GROUP BY what ORDER BY what")
    }

    pub(crate) async fn operators(&self) -> Operators {
        match &self.home {
            Home::Postgres(_) => Operators::open(&self.address).await.unwrap(),
            Home::Sqlite(directory) => {
                Operators::in_file(open(&directory.path().join("shop.db"))).unwrap()
            }
        }
    }

    pub(crate) async fn until(&self, statement: &str, expected: &str) {
        let wait = async {
            while self.sql(statement) != expected {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        let in_time = tokio::time::timeout(WAIT_MAX, wait).await;
        assert!(in_time.is_ok(), "{:?} instead of {expected:?}", self.sql(statement));
    }
}

/// An operation with this key.
pub(crate) fn operation(key: &str) -> Operation {
    Operation::new("POST /orders", Principal::of("account", b"acct_1"), key).unwrap()
}

/// The answer of a call that must have done the operation or found it done.
pub(crate) async fn answered<D, R>(steps: &Steps<D, R>, shop: &D, key: &str, request: &R) -> Reply
where
    D: Database,
    R: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    match steps.run(shop, &operation(key), request).await.unwrap() {
        StepsOutcome::Done(reply) | StepsOutcome::Replay(reply) => reply,
        other => panic!("{key}: {other:?}"),
    }
}

/// The tier's count: all of it, or about a tenth.
pub(crate) fn tiered(full: usize) -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { full } else { full.div_ceil(10) }
}

/// A test's condition comes true within this, or never.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Runs a test on both databases.
macro_rules! on_both {
    ($($(#[$meta:meta])* $name:ident;)+) => {
        mod on_postgres {
            $($(#[$meta])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name::<onlyonce::steps::PgDatabase>(crate::lab::Lab::postgres().await).await;
            })+
        }
        mod on_sqlite {
            $($(#[$meta])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name::<onlyonce::steps::SqliteDatabase>(crate::lab::Lab::sqlite()).await;
            })+
        }
    };
}
pub(crate) use on_both;
