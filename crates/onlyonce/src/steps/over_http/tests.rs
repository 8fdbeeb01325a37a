//! Every call of the database fails once, before it is made or after it was made: what is the client told?

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use rusqlite::Connection;
use serde_json::Value;

use super::HttpSteps;
use crate::code::{Code, Executed};
use crate::policy::Policy;
use crate::record::Token;
use crate::scope::Principal;
use crate::steps::database::{Change, Chosen, CommitError, Database, Due, InsertError, Journal};
use crate::steps::held::{Draft, Guard, Held, Next};
use crate::steps::over_rusqlite::SqliteWork;
use crate::steps::stopped::{Reason, Stopped};
use crate::steps::{Run, SqliteDatabase, SqliteStep, Steps, StepsError};
use crate::store::BoxError;
use crate::transaction::Reply;

/// A SQLite file, one of whose calls fails.
#[derive(Clone)]
struct Faulty {
    file: SqliteDatabase,
    /// Counts down to the call that fails.
    left: Arc<AtomicUsize>,
    /// Only its answer is lost.
    is_made: bool,
}

enum Fails {
    Not,
    Before,
    After,
}

impl Faulty {
    fn turn(&self) -> Fails {
        match self.left.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(1) if self.is_made => Fails::After,
            Ok(1) => Fails::Before,
            _ => Fails::Not,
        }
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StepsError>>,
    ) -> Result<T, StepsError> {
        let lost = || StepsError::Database(LOST.into());
        match self.turn() {
            Fails::Before => Err(lost()),
            Fails::After => call.await.and(Err(lost())),
            Fails::Not => call.await,
        }
    }
}

impl Database for Faulty {
    type Tx = SqliteStep;
}

impl Journal for Faulty {
    type Work = SqliteWork;

    async fn works_on_snapshots(&self) -> Result<bool, StepsError> {
        self.file.works_on_snapshots().await
    }

    async fn load(&self, id: &str) -> Result<Option<Held>, StepsError> {
        self.call(self.file.load(id)).await
    }

    async fn insert(
        &self,
        draft: &Draft,
        token: Token,
        lease_ms: i64,
        expired: Option<i64>,
    ) -> Result<bool, InsertError> {
        let insert = self.file.insert(draft, token, lease_ms, expired);
        match self.turn() {
            Fails::Before => Err(InsertError::NotMade(StepsError::Database(LOST.into()))),
            Fails::After => insert.await.and(Err(InsertError::Unsure(LOST.into()))),
            Fails::Not => insert.await,
        }
    }

    async fn swap(&self, id: &str, guard: Guard, next: &Next) -> Result<bool, StepsError> {
        self.call(self.file.swap(id, guard, next)).await
    }

    async fn renew(&self, id: &str, owner: Token, lease_ms: i64) -> Result<bool, StepsError> {
        self.call(self.file.renew(id, owner, lease_ms)).await
    }

    async fn take_due(
        &self,
        names: &[String],
        passed_over: Vec<String>,
        rows_max: usize,
        choose: impl Fn(&Held) -> Option<Chosen> + Send,
    ) -> Result<Due, StepsError> {
        self.file.take_due(names, passed_over, rows_max, choose).await
    }

    async fn begin(&self, id: &str, number: usize) -> Result<SqliteWork, Reason> {
        match self.turn() {
            Fails::Not => self.file.begin(id, number).await,
            Fails::Before | Fails::After => Err(Reason::Failed(LOST.into())),
        }
    }

    async fn commit(
        &self,
        id: &str,
        guard: Guard,
        change: &Change,
        work: Option<SqliteWork>,
    ) -> Result<(), CommitError> {
        match self.turn() {
            Fails::Before => Err(CommitError::Unsure(LOST.into())),
            Fails::After => {
                let committed = self.file.commit(id, guard, change, work).await;
                committed.and(Err(CommitError::Unsure(LOST.into())))
            }
            Fails::Not => self.file.commit(id, guard, change, work).await,
        }
    }

    async fn has_ended(&self, work: SqliteWork) -> bool {
        self.file.has_ended(work).await
    }

    fn is_conflict(error: &BoxError) -> bool {
        SqliteDatabase::is_conflict(error)
    }
}

const LOST: &str = "the line is cut";

/// A step, both kinds of call, and an end.
fn charges(database: Faulty, mails: &Arc<AtomicUsize>) -> HttpSteps<Faulty, u32> {
    let (mails, is_first) = (mails.clone(), Arc::new(AtomicBool::new(true)));
    let steps = Steps::new("charge", move |mut run: Run<Faulty>, amount: u32| {
        let (mails, is_first) = (mails.clone(), is_first.clone());
        async move {
            let fails = "SELECT EXISTS (SELECT 1 FROM effect WHERE what = 'fails')";
            let fails: bool = run
                .step("saved", async |tx| {
                    tx.execute("INSERT INTO effect VALUES ('saved')", [])?;
                    Ok(tx.query_row(fails, [], |row| row.get(0))?)
                })
                .await?;
            if fails && is_first.swap(false, Ordering::SeqCst) {
                return Err(Stopped::failed("for the first time"));
            }
            run.call("charged", async |_| Ok(())).await?;
            run.call_once("mailed", async |_| {
                mails.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .await?;
            run.finish(async |tx| {
                tx.execute("INSERT INTO effect VALUES ('receipt')", [])?;
                Ok(Reply::new(StatusCode::CREATED, amount.to_string()))
            })
            .await
        }
    });
    steps.over_http(database, |_: &_| Principal::of("api-key", b"ann"), Policy::payments())
}

async fn post(charges: &HttpSteps<Faulty, u32>) -> (StatusCode, Option<Code>) {
    let request = Request::post("/charges").header("idempotency-key", "charge-4711-of-the-order");
    let (head, ()) = request.body(()).unwrap().into_parts();
    let (head, body) = charges.answer(&head, &7998).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    (head.status, problem["code"].as_str().and_then(Code::from_text))
}

fn open(folder: &Path) -> Connection {
    let db = Connection::open(folder.join("shop.db")).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
    db
}

/// What an operation is told whose one call fails, and what became of it.
struct Trial {
    look: Connection,
    charges: HttpSteps<Faulty, u32>,
    mails: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

impl Trial {
    fn new(folder: &Path, is_made: bool) -> Self {
        let (look, left, mails) = (open(folder), Arc::<AtomicUsize>::default(), Arc::default());
        let file = SqliteDatabase::new(open(folder)).unwrap();
        look.execute_batch("CREATE TABLE effect (what TEXT)").unwrap();
        let charges = charges(Faulty { file, left: left.clone(), is_made }, &mails);
        Self { look, charges, mails, left }
    }

    fn count(&self, rows: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {rows}");
        self.look.query_row(&count, [], |row| row.get(0)).unwrap()
    }

    fn let_time_pass(&self) {
        let late = "UPDATE onlyonce_steps SET due_at = 1 WHERE due_at IS NOT NULL";
        self.look.execute_batch(late).unwrap();
    }

    fn effects(&self) -> [i64; 3] {
        let effect = |what| self.count(&format!("effect WHERE what = '{what}'"));
        [effect("saved"), effect("receipt"), self.mails.load(Ordering::SeqCst) as i64]
    }
}

/// What the request finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finds {
    Nothing,
    /// An attempt that has failed, after its first step.
    Waiting,
    /// An owner that died amid the call which must not be repeated.
    InDoubt,
}

impl Trial {
    async fn prepare(&self, finds: Finds) {
        if finds != Finds::Nothing {
            self.look.execute_batch("INSERT INTO effect VALUES ('fails')").unwrap();
            assert_eq!(post(&self.charges).await.1, Some(Code::InProgress));
            self.look.execute_batch("DELETE FROM effect WHERE what = 'fails'").unwrap();
        }
        if finds == Finds::InDoubt {
            let died = "UPDATE onlyonce_steps SET state = 'running', token = 't', calling = 'mailed', repeatable = 0";
            self.look.execute_batch(died).unwrap();
        }
        self.let_time_pass();
    }
}

// threat K23: each call of a request.
#[tokio::test]
async fn no_lost_call_of_the_database_makes_an_operation_unexecuted_that_is_begun() {
    for finds in [Finds::Nothing, Finds::Waiting, Finds::InDoubt] {
        let mut calls = 1;
        while lose(finds, calls, false).await && lose(finds, calls, true).await {
            calls += 1;
            assert!(calls < CALLS_MAX, "{finds:?}");
        }
        // A look and a write for what is given up; all steps for the rest.
        assert!(calls > if finds == Finds::InDoubt { 2 } else { 8 }, "{finds:?}: {calls} calls");
    }
}

/// Loses the call with this number. False if the request makes no such call.
async fn lose(finds: Finds, number: usize, is_made: bool) -> bool {
    let told = |said| format!("{finds:?}, call {number}, made {is_made}: {said:?}");
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial::new(folder.path(), is_made);
    trial.prepare(finds).await;
    trial.left.store(number, Ordering::SeqCst);
    let first = post(&trial.charges).await;
    let was_lost = trial.left.swap(0, Ordering::SeqCst) == 0;
    let is_begun = trial.count("onlyonce_steps") == 1;
    let is_denied = first.1.is_some_and(|code| code.executed() == Executed::No);
    // A request that could not even look says of itself alone that it was not executed.
    assert!(!(is_begun && is_denied) || number == 1, "{}", told(first));
    trial.let_time_pass();
    let last = post(&trial.charges).await;
    match (last, trial.effects()) {
        ((StatusCode::CREATED, None), [1, 1, 1]) if finds != Finds::InDoubt => {}
        // The mail is in doubt.
        ((_, Some(Code::OutcomeUnknown)), [1, 0, 0 | 1]) => {}
        other => panic!("{} then {other:?}", told(first)),
    }
    was_lost
}

const CALLS_MAX: usize = 60;
