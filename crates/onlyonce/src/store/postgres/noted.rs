//! Commits that add to the audit trail: what is written and what is told of it are one transaction.
//!
//! A commit with a trail has a second round trip: which records were written is known only after the first.

use futures_util::future::join;

use super::audit_rows::{append_params, chain_end};
use super::batch::Answers;
use super::columns::Param;
use super::connection::{Connection, bounded};
use super::member::Member;
use super::sql_error::{SqlError, cause, unclear};
use super::statement::Statement;
use crate::clock::StoreTime;
use crate::store::audit::{Chain, Note, WriterId};

/// The chain of one connection that writes.
pub(super) struct OwnChain {
    writer: WriterId,
    /// `None` after a commit that failed: whether it was made is read from the head.
    end: Option<Chain>,
}

impl OwnChain {
    /// A chain without entries.
    pub(super) fn new(writer: WriterId) -> Self {
        Self { writer, end: Some(Chain::new(writer)) }
    }

    /// The end of the chain, for one commit. The session before this connection's is over, so that the head does not
    /// move any more.
    async fn take_end(&mut self, connection: &Connection) -> Result<Chain, SqlError> {
        if let Some(end) = self.end.take() {
            return Ok(end);
        }
        let writer: [Param<'_>; 1] = [Box::new(self.writer.to_bytes().to_vec())];
        let read = bounded(connection.run(Statement::ChainEnd, &writer)).await;
        let rows = read.map_err(|error| match error {
            // Nothing was written yet.
            SqlError::Unsure(cause) => SqlError::BadSession(cause),
            error => error,
        })?;
        let end = rows.first().map_or_else(|| Ok(Chain::new(self.writer)), chain_end);
        end.map_err(|error| SqlError::NotDone(cause(error)))
    }
}

/// Commits with the end of the chain, if there is one. Unless the commit was made, nobody knows where the chain ends:
/// then the next commit reads it from the head.
pub(super) async fn with_chain<T>(
    own: &mut Option<OwnChain>,
    connection: &Connection,
    commit: impl AsyncFnOnce(Option<&mut Chain>) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let Some(own) = own else { return commit(None).await };
    let mut chain = own.take_end(connection).await?;
    let done = commit(Some(&mut chain)).await?;
    own.end = Some(chain);
    Ok(done)
}

/// What is told of a batch: of each member whose record was written by its statement.
pub(super) fn notes(members: &[Member], answers: &Answers) -> Vec<(StoreTime, Note)> {
    let note = |member: &Member| {
        let answer = answers.get(&member.statement())?;
        answer.written(member.id)?;
        Some((answer.now, member.note()?.clone()))
    };
    members.iter().filter_map(note).collect()
}

/// Does `write` in a transaction, and adds the entries that `notes` makes of its answer, if there is a chain.
pub(super) async fn commit_noted<T>(
    connection: &Connection,
    begin: &str,
    chain: Option<&mut Chain>,
    write: impl Future<Output = Result<T, SqlError>>,
    notes: impl FnOnce(&T, &mut Chain) -> Vec<(StoreTime, Note)>,
) -> Result<T, SqlError> {
    // Each future sends its message when it is polled first, so the order is that of the text.
    let (begun, written) = join(connection.client.batch_execute(begin), write).await;
    let written = begun.map_err(SqlError::from).and(written);
    let (mut entries, mut params) = (Vec::new(), Vec::new());
    if let (Ok(done), Some(chain)) = (&written, chain) {
        let notes = notes(done, chain);
        entries.extend(notes.into_iter().map(|(at, note)| chain.add(at, note)));
        params = append_params(chain, &entries);
    }
    let add = async { if entries.is_empty() { Ok(()) } else { add(connection, &params).await } };
    let end = if written.is_ok() { "COMMIT" } else { "ROLLBACK" };
    // A COMMIT after entries that the server refused undoes the transaction. They always reach it: their parameters are
    // of the types of the statement.
    let (added, ended) = join(add, connection.client.batch_execute(end)).await;
    let done = written?;
    added?;
    ended?;
    Ok(done)
}

async fn add(connection: &Connection, params: &[Param<'_>]) -> Result<(), SqlError> {
    let added = connection.run(Statement::Append, params).await?;
    // It answers with the head that it wrote.
    if added.is_empty() { Err(unclear("the audit trail was not written")) } else { Ok(()) }
}
