//! Renewing leases, on a connection of their own, so that no batch can make one lapse.

use super::answer::Answer;
use super::columns::{Row, uuid};
use super::connection::Reconnecting;
use super::sql_error::SqlError;
use super::statement::Statement;
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
    let row = |(id, token): &(OperationId, Token)| Row {
        token: uuid(*token),
        lease_ms: lease.as_ms(),
        ..Row::of_id(*id)
    };
    let rows: Vec<_> = sorted.iter().map(row).collect();
    let answer = Answer::read(connection.query(statement, &statement.params(&rows)).await?)?;
    // A row that was passed because it is locked may be anyone's.
    let otherwise = if statement == Statement::Renew { Beat::Lost } else { Beat::Unsure };
    let is_kept = |(id, token): &(OperationId, Token)| {
        answer.written(*id).is_some_and(|revision| revision.token == *token)
    };
    Ok(held.iter().map(|lease| if is_kept(lease) { Beat::Kept } else { otherwise }).collect())
}

/// Leases in one statement.
const PART_MAX: usize = 1_000;
