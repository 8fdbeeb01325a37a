//! One commit of a worker: the members of a batch, each at its step, and what the server answered.

use std::collections::HashMap;

use futures_util::future::{join_all, join3};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::columns::{Param, record};
use super::connection::Connection;
use super::member::Member;
use super::noted::{commit_noted, notes};
use super::sql_error::SqlError;
use super::statement::Statement;
use super::value::Moment;
use crate::clock::StoreTime;
use crate::record::{Revision, Token};
use crate::scope::OperationId;
use crate::store::audit::Chain;
use crate::store::{Fault, Seen};

pub(super) type Answers = HashMap<Statement, Answer>;

/// Does the step of each member, sorted by id, in one commit, and adds to `chain` what the audit trail is told of it. With
/// `hurry` it hardly waits for the locks of others. All statements at once, in order, and in one transaction: so the first
/// error is the error of all.
pub(super) async fn commit(
    connection: &Connection,
    members: &[Member],
    hurry: bool,
    chain: Option<&mut Chain>,
) -> Result<Answers, SqlError> {
    let statements = Statement::ALL.iter().filter_map(|statement| {
        let of = members.iter().filter(|member| member.statement() == *statement);
        let mut rows: Vec<_> = of.map(Member::row).collect();
        rows.dedup_by_key(|row| row.id);
        (!rows.is_empty()).then(|| (*statement, statement.params(&rows)))
    });
    let statements: Vec<_> = statements.collect();
    let ask = async |(statement, params): &(Statement, Vec<Param<'_>>)| {
        let rows = connection.run(*statement, params).await?;
        Ok::<_, SqlError>((*statement, Answer::read(rows)?))
    };
    let begin = if hurry { BEGIN_IN_A_HURRY } else { "BEGIN" };
    if chain.is_some() && members.iter().any(|member| member.note().is_some()) {
        let write = async { join_all(statements.iter().map(ask)).await.into_iter().collect() };
        let notes = |answers: &Answers, _: &mut Chain| notes(members, answers);
        return commit_noted(connection, begin, chain, write, notes).await;
    }
    // A transaction of its own: most loads, which would else be three statements.
    if let ([statement], false) = (&statements[..], hurry) {
        return Ok(HashMap::from([ask(statement).await?]));
    }
    // Each future sends its message when it is polled first, so the order is that of the text.
    let (begun, answers, committed) = join3(
        connection.client.batch_execute(begin),
        join_all(statements.iter().map(ask)),
        connection.client.batch_execute("COMMIT"),
    )
    .await;
    begun?;
    let answers = answers.into_iter().collect::<Result<_, _>>()?;
    committed?;
    Ok(answers)
}

/// The answer of a statement: the store's time, and a row for each record that it read or wrote. A member without a row
/// has failed its guard, or another session was faster.
pub(super) struct Answer {
    pub(super) now: StoreTime,
    rows: HashMap<OperationId, (Row, Option<Revision>)>,
}

impl Answer {
    pub(super) fn read(rows: Vec<Row>) -> Result<Self, SqlError> {
        let Moment(now) = rows.first().ok_or(SqlError::Moved)?.try_get("now")?;
        let mut records = HashMap::with_capacity(rows.len());
        for row in rows {
            if let Some((id, written)) = id_and_revision(&row)? {
                records.insert(id, (row, written));
            }
        }
        Ok(Self { now, rows: records })
    }

    /// The revision of the record, if the statement wrote it.
    pub(super) fn written(&self, id: OperationId) -> Option<Revision> {
        self.rows.get(&id)?.1
    }

    /// The record of `id`, if the statement read one or inserted it. One that does not read is an error, never absent.
    pub(super) fn seen(&self, id: OperationId) -> Result<Seen, Fault> {
        let record = self.rows.get(&id).map(|(row, _)| record(row)).transpose();
        let record = record.map_err(Fault::NotDone)?;
        Ok(Seen { record, mine: false, now: self.now })
    }

    /// Whether the statement listed the record of `id`.
    pub(super) fn has(&self, id: OperationId) -> bool {
        self.rows.contains_key(&id)
    }

    /// The ids of the records.
    pub(super) fn ids(&self) -> impl Iterator<Item = OperationId> + '_ {
        self.rows.keys().copied()
    }
}

/// `None` in a row that only tells the time; the revision only if the record was written.
fn id_and_revision(row: &Row) -> Result<Option<(OperationId, Option<Revision>)>, Error> {
    let Some(id) = row.try_get::<_, Option<Uuid>>("id")? else { return Ok(None) };
    let id = OperationId::from_bytes(id.into_bytes());
    if !row.try_get("wrote")? {
        return Ok(Some((id, None)));
    }
    let token = Token::from_bytes(row.try_get::<_, Uuid>("token")?.into_bytes());
    let count = row.try_get::<_, i64>("count")?.cast_unsigned();
    Ok(Some((id, Some(Revision { token, count }))))
}

const BEGIN_IN_A_HURRY: &str = "BEGIN; SET LOCAL lock_timeout = 20";
