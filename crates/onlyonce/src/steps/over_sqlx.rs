//! Steps in a Postgres database, through sqlx.

mod statements;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgDatabaseError, PgRow, PgSeverity};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, PgExecutor, PgPool, Postgres, Row};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use self::statements::Statements;
use super::StepsState;
use super::database::{Change, Chosen, CommitError, Database, Due, InsertError, Journal};
use super::error::StepsError;
use super::held::{Answer, Calling, Draft, Guard, Held, Next, points};
use super::lent::Lent;
use super::stopped::Reason;
use crate::clock::StoreTime;
use crate::hex::uuid_text;
use crate::record::Token;
use crate::sqlstate::{is_conflict, is_definite};
use crate::store::BoxError;
use crate::transaction::pool::{IS_ABOVE_READ_COMMITTED, LEFT_OPEN, READ_COMMITTED, Whole};

/// A Postgres database, through a pool of the caller. The tables and functions are made by
/// [`PostgresStore::open`](crate::store::postgres::PostgresStore::open) or `onlyonce migrate`.
#[derive(Clone)]
pub struct PgDatabase {
    pool: PgPool,
    statements: Arc<Statements>,
    /// Whether a transaction has an isolation above READ COMMITTED if it asks for none. Asked once.
    is_above_read_committed: Arc<OnceCell<bool>>,
}

impl PgDatabase {
    /// Uses the schema `onlyonce`.
    pub fn new(pool: PgPool) -> Self {
        Self::in_schema(pool, "onlyonce")
    }

    /// Uses `schema`: the one that the store was opened with.
    pub fn in_schema(pool: PgPool, schema: &str) -> Self {
        let statements = Arc::new(Statements::of(schema));
        Self { pool, statements, is_above_read_committed: Arc::default() }
    }

    async fn is_above_read_committed(&self) -> Result<bool, sqlx::Error> {
        let ask = async || {
            let ask = AssertSqlSafe(format!("SELECT {IS_ABOVE_READ_COMMITTED} AS is_above"));
            sqlx::query(ask).fetch_one(&self.pool).await?.try_get("is_above")
        };
        self.is_above_read_committed.get_or_try_init(ask).await.copied()
    }

    /// Runs one statement in a transaction of its own, under READ COMMITTED. A single statement is a transaction by itself, with
    /// the isolation of the default: BEGIN and COMMIT are sent only where that is another one.
    async fn alone(
        &self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Result<Option<PgRow>, sqlx::Error> {
        if !self.is_above_read_committed().await? {
            return query.fetch_optional(&self.pool).await;
        }
        let mut transaction = Whole::begin(&self.pool, READ_COMMITTED).await?;
        let row = query.fetch_optional(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(row)
    }

    /// Asks a function that says whether it has written.
    async fn is_written<'e>(
        &self,
        executor: impl PgExecutor<'e>,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Result<bool, sqlx::Error> {
        query.fetch_one(executor).await?.try_get("is_written")
    }

    /// The same in a transaction of its own.
    async fn is_written_alone(
        &self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Result<bool, sqlx::Error> {
        let row = self.alone(query).await?;
        row.ok_or(sqlx::Error::RowNotFound)?.try_get("is_written")
    }

    /// The same within the time that a call may take.
    async fn is_swapped(
        &self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Result<bool, StepsError> {
        in_time(self.is_written_alone(query)).await
    }

    /// The rows that are due, locked. They are read by a statement of their own: one that locks and reads returns a row as it
    /// is when it is locked, but the points as they were when the statement began.
    async fn lock_due(
        &self,
        transaction: &mut Whole,
        names: &[String],
        passed_over: Vec<String>,
        rows_max: usize,
    ) -> Result<Vec<PgRow>, StepsError> {
        let due = query(&self.statements.due)
            .bind(names.to_vec())
            .bind(i64::try_from(rows_max).unwrap_or(i64::MAX))
            .bind(passed_over);
        let locked = in_time(due.fetch_all(&mut **transaction)).await?;
        let ids: Result<Vec<String>, _> = locked.iter().map(|row| row.try_get("id")).collect();
        let read = query(&self.statements.locked).bind(ids.map_err(failed)?);
        in_time(read.fetch_all(&mut **transaction)).await
    }

    fn swap_query(
        &self,
        id: &str,
        guard: Guard,
        next: &Next,
    ) -> Query<'static, Postgres, PgArguments> {
        query(&self.statements.swap)
            .bind(id.to_owned())
            .bind(guard.revision)
            .bind(guard.owner.map(text))
            .bind(next.state.name())
            .bind(next.token.map(text))
            .bind(next.due_ms.map(|ms| ms as f64))
            .bind(i32::try_from(next.attempts).unwrap_or(i32::MAX))
            .bind(next.calling.as_ref().map(|calling| calling.name.clone()))
            .bind(next.calling.as_ref().is_some_and(|calling| calling.is_repeatable))
            .bind(next.quiet_ms as f64)
            .bind(next.error.clone())
    }

    fn change_query(
        &self,
        id: &str,
        guard: Guard,
        working: String,
        change: &Change,
    ) -> Query<'static, Postgres, PgArguments> {
        let statement = match change {
            Change::Point { .. } => &self.statements.point,
            Change::Finish(_) => &self.statements.finish,
        };
        let query = query(statement)
            .bind(id.to_owned())
            .bind(guard.revision)
            .bind(guard.owner.map(text))
            .bind(working);
        match change {
            Change::Point { number, name, value, lease_ms } => query
                .bind(i32::try_from(*number).unwrap_or(i32::MAX))
                .bind(name.clone())
                .bind(value.clone())
                .bind(*lease_ms as f64),
            Change::Finish(reply) => query
                .bind(i32::from(reply.status.as_u16()))
                .bind(reply.headers_json())
                .bind(reply.body.to_vec()),
        }
    }
}

impl Database for PgDatabase {
    type Tx = PgStep;
}

impl Journal for PgDatabase {
    type Work = PgWork;

    async fn load(&self, id: &str) -> Result<Option<Held>, StepsError> {
        let load = query(&self.statements.load).bind(id.to_owned());
        let row = within_time(self.alone(load)).await.map_err(|error| match is_damage(&error) {
            true => StepsError::Unreadable { operation: id.to_owned(), error: error.into() },
            false => failed(error),
        })?;
        row.as_ref().map(held).transpose()
    }

    async fn works_on_snapshots(&self) -> Result<bool, StepsError> {
        in_time(self.is_above_read_committed()).await
    }

    async fn insert(
        &self,
        draft: &Draft,
        token: Token,
        lease_ms: i64,
        expired: Option<i64>,
    ) -> Result<bool, InsertError> {
        let draft = draft.clone();
        let insert = query(&self.statements.insert)
            .bind(draft.id)
            .bind(draft.name)
            .bind(draft.scope)
            .bind(draft.principal)
            .bind(draft.key)
            .bind(draft.fingerprint)
            .bind(draft.ttl_ms)
            .bind(draft.request)
            .bind(draft.revision)
            .bind(text(token))
            .bind(lease_ms as f64)
            .bind(expired);
        let unsure = |error| match is_undone(&error) {
            true => InsertError::NotMade(failed(error)),
            false => InsertError::Unsure(error.into()),
        };
        // Who has no connection, or no transaction, has sent nothing that counts.
        let is_above =
            in_time(self.is_above_read_committed()).await.map_err(InsertError::NotMade)?;
        if !is_above {
            let connection = in_time(self.pool.acquire()).await;
            let mut connection = connection.map_err(InsertError::NotMade)?;
            let insert = within_time(self.is_written(&mut *connection, insert));
            return insert.await.map_err(unsure);
        }
        let transaction = in_time(Whole::begin(&self.pool, READ_COMMITTED)).await;
        let mut transaction = transaction.map_err(InsertError::NotMade)?;
        let insert = async {
            let is_inserted = self.is_written(&mut *transaction, insert).await?;
            transaction.commit().await?;
            Ok(is_inserted)
        };
        within_time(insert).await.map_err(unsure)
    }

    async fn swap(&self, id: &str, guard: Guard, next: &Next) -> Result<bool, StepsError> {
        self.is_swapped(self.swap_query(id, guard, next)).await
    }

    async fn renew(&self, id: &str, owner: Token, lease_ms: i64) -> Result<bool, StepsError> {
        let renew = query(&self.statements.renew)
            .bind(id.to_owned())
            .bind(text(owner))
            .bind(lease_ms as f64);
        self.is_swapped(renew).await
    }

    async fn take_due(
        &self,
        names: &[String],
        passed_over: Vec<String>,
        rows_max: usize,
        choose: impl Fn(&Held) -> Option<Chosen> + Send,
    ) -> Result<Due, StepsError> {
        let mut transaction = in_time(Whole::begin(&self.pool, READ_COMMITTED)).await?;
        let rows = self.lock_due(&mut transaction, names, passed_over, rows_max).await?;
        let mut due = Due::default();
        for row in &rows {
            let held = match held(row) {
                Ok(held) => held,
                Err(error) => {
                    due.unreadable.push(error);
                    continue;
                }
            };
            let Some(chosen) = choose(&held) else { continue };
            let guard = Guard { revision: held.revision, owner: None };
            let swap = self.swap_query(&held.id, guard, &chosen.next);
            let is_written = in_time(self.is_written(&mut *transaction, swap)).await?;
            if let (true, Some(token)) = (is_written, chosen.taken) {
                due.taken.push((held, token));
            }
        }
        in_time(transaction.commit()).await?;
        Ok(due)
    }

    async fn begin(&self, id: &str, number: usize) -> Result<PgWork, Reason> {
        let working = format!("{id} {number}");
        // In one round trip. The id is a UUID.
        let statement = format!("BEGIN; SET LOCAL onlyonce.step = '{working}'");
        let begun = in_time(Whole::begin(&self.pool, AssertSqlSafe(statement))).await;
        let transaction = begun.map_err(|error| Reason::Failed(error.into()))?;
        Ok(PgWork { transaction, working, outbox: self.statements.outbox.clone() })
    }

    async fn commit(
        &self,
        id: &str,
        guard: Guard,
        change: &Change,
        work: Option<PgWork>,
    ) -> Result<(), CommitError> {
        let Some(mut work) = work else {
            let write = self.change_query(id, guard, String::new(), change);
            let written = timeout(COMMIT_WAIT_MAX, self.is_written_alone(write)).await;
            let is_written = written.map_err(|elapsed| CommitError::Unsure(elapsed.into()))?;
            return demand_written(is_written.map_err(|error| CommitError::Unsure(error.into()))?);
        };
        if work.transaction.has_nested() {
            return Err(CommitError::Unsure(LEFT_OPEN.into()));
        }
        let write = self.change_query(id, guard, std::mem::take(&mut work.working), change);
        let written = self.is_written(&mut *work.transaction, write).await;
        demand_written(written.map_err(not_written)?)?;
        match timeout(COMMIT_WAIT_MAX, work.transaction.commit()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(not_written(error)),
            Err(elapsed) => Err(CommitError::Unsure(elapsed.into())),
        }
    }

    async fn has_ended(&self, mut work: PgWork) -> bool {
        let demand = query(&self.statements.demand_open).bind(work.working.clone());
        let asked = timeout(CALL_WAIT_MAX, demand.execute(&mut *work.transaction)).await;
        // An aborted transaction, and one whose connection is lost, commits nothing any more.
        let error = asked.ok().and_then(Result::err).map(not_written);
        matches!(error, Some(CommitError::EndedByWork(_)))
    }

    fn is_conflict(error: &BoxError) -> bool {
        is_conflict(&**error)
    }
}

/// An open transaction of a step.
pub(super) struct PgWork {
    transaction: Whole,
    /// What the transaction says while it is the one that was begun.
    working: String,
    outbox: Arc<str>,
}

/// The transaction of a step: a connection for the caller's own statements. The step is committed after the work has dropped
/// it.
#[derive(Debug)]
pub struct PgStep {
    id: String,
    work: Lent<PgWork>,
}

impl PgStep {
    /// Adds a message to the outbox, in the commit of the step, and returns its id. Messages of one `topic` and `key` are
    /// shipped in order, and transactions that add them wait for each other; those without a key are shipped in any order.
    ///
    /// # Errors
    /// If the database does not take it.
    pub async fn outbox(
        &mut self,
        topic: &str,
        key: Option<&str>,
        payload: &[u8],
    ) -> Result<String, BoxError> {
        let message = query(&self.work.outbox)
            .bind(self.id.clone())
            .bind(self.work.working.clone())
            .bind(topic.to_owned())
            .bind(key.map(str::to_owned))
            .bind(payload.to_vec());
        let row = message.fetch_one(&mut *self.work.transaction).await?;
        Ok(row.try_get("id")?)
    }

    /// The operation's id: the same in every run.
    pub fn operation_id(&self) -> &str {
        &self.id
    }
}

#[doc(hidden)]
impl From<(String, Lent<PgWork>)> for PgStep {
    fn from((id, work): (String, Lent<PgWork>)) -> Self {
        Self { id, work }
    }
}

impl Deref for PgStep {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.work.transaction
    }
}

impl DerefMut for PgStep {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.work.transaction
    }
}

impl fmt::Debug for PgDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgDatabase").finish_non_exhaustive()
    }
}

fn held(row: &PgRow) -> Result<Held, StepsError> {
    read(row).map_err(|error| {
        let operation = row.try_get("id").unwrap_or_default();
        StepsError::Unreadable { operation, error }
    })
}

fn read(row: &PgRow) -> Result<Held, BoxError> {
    let state: String = row.try_get("state")?;
    let state = StepsState::of(&state).ok_or_else(|| format!("its state is {state:?}"))?;
    let points = points(row.try_get("points")?)?;
    let ms = |name| -> Result<_, sqlx::Error> {
        let ms: Option<f64> = row.try_get(name)?;
        Ok(ms.map(|ms| StoreTime::from_ms(ms.round() as i64)))
    };
    let answer = match (row.try_get("status")?, ms("expires_ms")?) {
        (Some(status), Some(expires_at)) => {
            let (headers, body) = (row.try_get("headers")?, row.try_get("body")?);
            Some(Answer { status, headers, body, expires_at })
        }
        _ => None,
    };
    Ok(Held {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        fingerprint: row.try_get("fingerprint")?,
        request: row.try_get("request")?,
        state,
        since: ms("since_ms")?.ok_or("it has no time")?,
        revision: row.try_get("revision")?,
        due_at: ms("due_ms")?,
        attempts: row.try_get::<i32, _>("attempts")?.unsigned_abs(),
        calling: Calling::of(row.try_get("calling")?, row.try_get("repeatable")?),
        error: row.try_get("error")?,
        points,
        answer,
        now: ms("now_ms")?.ok_or("the database tells no time")?,
    })
}

fn demand_written(is_written: bool) -> Result<(), CommitError> {
    if is_written { Ok(()) } else { Err(CommitError::Stale) }
}

fn not_written(error: sqlx::Error) -> CommitError {
    match error.as_database_error().and_then(|error| error.code()).as_deref() {
        _ if is_conflict(&error) => CommitError::Conflict(error.into()),
        Some("OO004") => CommitError::EndedByWork(error.into()),
        _ => CommitError::Unsure(error.into()),
    }
}

fn failed(error: sqlx::Error) -> StepsError {
    match error.as_database_error().and_then(|error| error.code()).as_deref() {
        // Undefined function, undefined table, invalid schema name.
        Some("42883" | "42P01" | "3F000") => StepsError::NotInstalled(error.into()),
        _ => StepsError::Database(error.into()),
    }
}

/// Whether the server has said that a statement, or the transaction that it is alone in, was undone.
fn is_undone(error: &sqlx::Error) -> bool {
    let said = error.as_database_error().and_then(|said| said.try_downcast_ref());
    said.is_some_and(|said: &PgDatabaseError| {
        is_definite(said.code(), said.severity() != PgSeverity::Error)
    })
}

/// Whether there is a row, and the server cannot read it or cannot tell what is in it.
fn is_damage(error: &sqlx::Error) -> bool {
    let state = error.as_database_error().and_then(|error| error.code());
    state.is_some_and(|state| state.starts_with("22") || state.starts_with("XX"))
}

async fn in_time<T>(call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StepsError> {
    within_time(call).await.map_err(failed)
}

async fn within_time<T>(
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let answer = timeout(CALL_WAIT_MAX, call).await;
    answer.unwrap_or_else(|elapsed| Err(sqlx::Error::Io(elapsed.into())))
}

fn text(token: Token) -> String {
    uuid_text(*token.as_bytes())
}

fn query(sql: &Arc<str>) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(sql.clone()))
}

/// How long the database may take for a statement, with the wait for a connection of the pool.
const CALL_WAIT_MAX: Duration = Duration::from_secs(35);
/// How long a commit may take before it counts as unsure.
const COMMIT_WAIT_MAX: Duration = Duration::from_secs(10);
