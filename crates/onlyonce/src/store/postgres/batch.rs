//! One commit of a worker: the members of a batch, each at its step.

use std::collections::HashMap;

use futures_util::future::{join_all, join3};

use super::answer::Answer;
use super::columns::Param;
use super::connection::{Connection, bounded};
use super::member::Member;
use super::noted::commit_noted;
use super::sql_error::SqlError;
use super::statement::Statement;
use crate::clock::StoreTime;
use crate::store::audit::{Chain, Note};

pub(super) type Answers = HashMap<Statement, Answer>;

/// Does the step of each member, sorted by id, in one commit, and adds to `chain` what the audit trail is told of it. With
/// `hurry` it hardly waits for the locks of others.
pub(super) async fn send(
    connection: &Connection,
    members: &[Member],
    hurry: bool,
    chain: Option<&mut Chain>,
) -> Result<Answers, SqlError> {
    let answers = bounded(commit(connection, members, hurry, chain)).await?;
    if answers.keys().any(|statement| *statement != Statement::Load) {
        connection.demand_no_warning()?;
    }
    Ok(answers)
}

/// All statements at once, in order, and in one transaction: so the first error is the error of all.
async fn commit(
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
    let chain = chain.filter(|_| members.iter().any(|member| member.note().is_some()));
    if chain.is_some() {
        let write = async { join_all(statements.iter().map(ask)).await.into_iter().collect() };
        let notes = |answers: &Answers, _: &mut Chain| notes(members, answers);
        return commit_noted(connection, begin, chain, write, notes).await;
    }
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

/// What the audit trail is told: of each member whose record was written by its statement.
fn notes(members: &[Member], answers: &Answers) -> Vec<(StoreTime, Note)> {
    let note = |member: &Member| {
        let answer = answers.get(&member.statement())?;
        answer.written(member.id())?;
        Some((answer.now, member.note()?.clone()))
    };
    members.iter().filter_map(note).collect()
}

const BEGIN_IN_A_HURRY: &str = "BEGIN; SET LOCAL lock_timeout = 20";
