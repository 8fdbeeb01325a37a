//! Renewing leases, on a connection of their own, so that no batch can make one lapse.

use super::batch::Answer;
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
        let renewed = renew_part(connection, part, lease).await;
        beats.extend(renewed.unwrap_or_else(|_| vec![Beat::Unsure; part.len()]));
    }
    beats
}

async fn renew_part(
    connection: &mut Reconnecting,
    held: &[(OperationId, Token)],
    lease: Lease,
) -> Result<Vec<Beat>, SqlError> {
    let row = |(id, token): &(OperationId, Token)| Row {
        token: uuid(*token),
        lease_ms: lease.as_ms(),
        ..Row::of_id(*id)
    };
    let params = Statement::Renew.params(&held.iter().map(row).collect::<Vec<_>>());
    let answer = Answer::read(connection.query(Statement::Renew, &params).await?)?;
    let beat = |(id, token): &(OperationId, Token)| match answer.written(*id) {
        Some(revision) if revision.token == *token => Beat::Kept,
        // It was passed because it is locked: it may be anyone's by now.
        None if answer.has(*id) => Beat::Unsure,
        _ => Beat::Lost,
    };
    Ok(held.iter().map(beat).collect())
}

/// Leases in one statement.
const PART_MAX: usize = 1_000;
