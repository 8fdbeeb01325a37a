//! Renewing leases, on a connection of their own, so that no batch can make one lapse.

use super::answer::{Answer, Found};
use super::columns::Row;
use super::connection::Reconnecting;
use super::sql_error::SqlError;
use super::statement::{Statement, Write};
use super::value::Uuid;
use crate::record::Token;
use crate::scope::OperationId;
use crate::store::{Beat, Lease};

/// Renews the leases, and tells what became of each.
pub(super) async fn renew(
    connection: &mut Reconnecting,
    held: &[(OperationId, Token)],
    lease: Lease,
) -> Vec<Beat> {
    let mut beats = Vec::with_capacity(held.len());
    for part in held.chunks(PART_MAX) {
        let renewed = match renew_part(connection, Statement::Renew, part, lease).await {
            // Another session holds a row, or there was a deadlock: the other leases must not lapse for that.
            Err(SqlError::Locked | SqlError::Retry) => {
                renew_part(connection, Statement::RenewUnlocked, part, lease).await
            }
            renewed => renewed,
        };
        beats.extend(renewed.unwrap_or_else(|_| vec![Beat::Unsure; part.len()]));
    }
    beats
}

async fn renew_part(
    connection: &mut Reconnecting,
    statement: Statement,
    held: &[(OperationId, Token)],
    lease: Lease,
) -> Result<Vec<Beat>, SqlError> {
    let mut sorted = held.to_vec();
    sorted.sort_unstable_by_key(|(id, _)| *id);
    let writes = sorted.iter().map(|(id, token)| write(*id, *token, lease)).collect();
    let rows = connection.query(statement, &statement.params(writes)).await?;
    let answer = Answer::read(&rows)?;
    // A row that was passed because it is locked may be anyone's.
    let otherwise = if statement == Statement::Renew { Beat::Lost } else { Beat::Unsure };
    let is_kept = |(id, token): &(OperationId, Token)| match answer.found.get(id) {
        Some(Found::Written(Some(revision))) => revision.token == *token,
        _ => false,
    };
    Ok(held.iter().map(|lease| if is_kept(lease) { Beat::Kept } else { otherwise }).collect())
}

fn write(id: OperationId, token: Token, lease: Lease) -> Write<'static> {
    let (token, lease_ms) = (Uuid(*token.as_bytes()), lease.as_ms());
    Write { row: Row { token, lease_ms, ..Row::of_id(id) }, ..Write::default() }
}

/// The statements of this connection.
pub(super) const STATEMENTS: &[Statement] = &[Statement::Renew, Statement::RenewUnlocked];
/// Leases in one statement.
const PART_MAX: usize = 1_000;
