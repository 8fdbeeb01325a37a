//! The maintenance connection: listings, counts, check values, and the mark that the records were moved. Sweeps and the
//! reading of the audit trail use it, too.

use uuid::Uuid;

use super::batch::Answer;
use super::columns::Param;
use super::connection::{Connection, Reconnecting, bounded};
use super::noted::{OwnChain, commit_noted, with_chain};
use super::sql_error::SqlError;
use super::statement::Statement;
use super::value::Moment;
use crate::clock::StoreTime;
use crate::record::{StateKind, StateSet};
use crate::scope::OperationId;
use crate::store::audit::{Chain, Note};
use crate::store::{Census, Cursor, Page, Scan};

pub(super) struct Maintenance {
    pub(super) connection: Reconnecting,
    /// Quoted.
    pub(super) schema: String,
    /// Everything that expired before this was swept, but for rows that were locked.
    pub(super) swept_until: StoreTime,
    /// Its chain of the audit trail, if one is kept.
    pub(super) chain: Option<OwnChain>,
}

impl Maintenance {
    /// Records that do not read are left out: their own look-up says so.
    pub(super) async fn scan(&mut self, query: Scan) -> Result<Page, SqlError> {
        let statement = match query.states {
            states if states == StateSet::of(&[StateKind::Running]) => Statement::ScanRunning,
            states if states == StateSet::of(&[StateKind::Unknown]) => Statement::ScanUnknown,
            _ => Statement::ScanAll,
        };
        let limit = query.limit.min(PAGE_ROWS_MAX);
        let first = query.after.map_or(Some(0), |Cursor(after)| after.checked_add(1));
        let rows_max = if first.is_some() { i64::try_from(limit).unwrap_or(0) } else { 0 };
        let first = Uuid::from_u128(first.unwrap_or(u128::MAX));
        let params: [Param<'_>; 2] = [Box::new(first), Box::new(rows_max)];
        let answer = Answer::read(self.connection.query(statement, &params).await?)?;
        Ok(page(&answer, query.states, limit))
    }

    pub(super) async fn census(&mut self) -> Result<Census, SqlError> {
        let rows = self.connection.query(Statement::Census, &[]).await?;
        let row = rows.into_iter().next().ok_or(SqlError::Moved)?;
        let count = |name| row.try_get::<&str, i64>(name).map(i64::unsigned_abs);
        let since = |name| {
            let moment = row.try_get::<&str, Option<Moment>>(name);
            moment.map(|moment| moment.map(|Moment(moment)| moment))
        };
        let (running, unknown) = (count("running")?, count("unknown")?);
        Ok(Census {
            running,
            running_since: since("running_since")?,
            unknown,
            unknown_since: since("unknown_since")?,
            // The estimate of a young table is zero.
            records: count("records")?.max(running + unknown),
        })
    }

    /// Does `write` in one transaction, and adds to the audit trail, if one is kept, what `notes` makes of its answer.
    pub(super) async fn transaction<T>(
        &mut self,
        begin: &str,
        write: impl AsyncFnOnce(&Connection) -> Result<T, SqlError>,
        notes: impl FnOnce(&T, &mut Chain) -> Vec<(StoreTime, Note)>,
    ) -> Result<T, SqlError> {
        let connection = self.connection.ready().await?;
        let commit = async |chain: Option<&mut Chain>| {
            let write = write(connection);
            let done = bounded(commit_noted(connection, begin, chain, write, notes)).await?;
            connection.demand_no_warning()?;
            Ok(done)
        };
        let done = with_chain(&mut self.chain, connection, commit).await;
        self.connection.judge(done)
    }

    /// Makes a check value of `to` if it is `from`, and tells what it is then; given are its name, `from` and `to`. The
    /// value that is read last was committed: the insertion waits for another one that is under way, and nothing is
    /// deleted while nodes run.
    pub(super) async fn check_value(
        &mut self,
        [name, from, to]: [Option<String>; 3],
    ) -> Result<Option<String>, SqlError> {
        let table = format!("{}.check_value", self.schema);
        let insert = format!(
            "INSERT INTO {table} (name, value) SELECT $1, $3 WHERE $2::text IS NULL
             ON CONFLICT (name) DO NOTHING"
        );
        let update = format!("UPDATE {table} SET value = $3 WHERE name = $1 AND value = $2");
        let select = format!("SELECT value FROM {table} WHERE name = $1");
        let check = async |connection: &Connection| {
            let client = &connection.client;
            // A user who may only read asks without `to`.
            if to.is_some() {
                client.execute(&insert, &[&name, &from, &to]).await?;
                client.execute(&update, &[&name, &from, &to]).await?;
            }
            let kept = client.query_opt(&select, &[&name]).await?;
            Ok(kept.map(|row| row.try_get("value")).transpose()?)
        };
        self.transaction("BEGIN", check, |_, _| Vec::new()).await
    }

    /// After every write that is under way: one that began before must not end after it.
    pub(super) async fn mark_moved(&mut self, to: String) -> Result<(), SqlError> {
        let lock = format!("LOCK TABLE {}.record IN SHARE ROW EXCLUSIVE MODE", self.schema);
        let mark = format!("UPDATE {}.meta SET moved_to = $1 WHERE one = 1", self.schema);
        let mark = async |connection: &Connection| {
            connection.client.batch_execute(&lock).await?;
            connection.client.execute(&mark, &[&to]).await?;
            Ok(())
        };
        self.transaction("BEGIN", mark, |(), _| Vec::new()).await
    }
}

/// The page of an answer that had `limit` rows at most.
fn page(answer: &Answer, states: StateSet, limit: usize) -> Page {
    let mut ids: Vec<OperationId> = answer.ids().collect();
    ids.sort_unstable();
    let last = ids.last().filter(|_| limit > 0 && ids.len() == limit);
    let next = last.map(|id| Cursor(u128::from_be_bytes(*id.as_bytes())));
    let listed = |id| Some((id, answer.seen(id).ok()?.record?));
    let mut records: Vec<_> = ids.into_iter().filter_map(listed).collect();
    records.retain(|(_, record)| states.contains(record.state.kind()));
    Page { records, next, now: answer.now }
}

/// Before everything that expires.
pub(super) const START: StoreTime = StoreTime::from_ms(0);
/// Records in a page.
const PAGE_ROWS_MAX: usize = 1_000;
