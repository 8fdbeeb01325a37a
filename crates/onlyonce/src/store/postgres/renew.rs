//! Renewing leases, on a connection of their own, so that no batch can make one lapse.

use std::collections::HashMap;

use uuid::Uuid;

use super::columns::{Row, uuid};
use super::connection::Reconnecting;
use super::sql_error::{SqlError, unclear};
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
    let asked: Vec<_> = held.iter().map(row).collect();
    let rows = connection.query(Statement::Renew, &Statement::Renew.params(&asked)).await?;
    if rows.is_empty() {
        return Err(SqlError::Moved);
    }
    let mut is_renewed = HashMap::new();
    for row in &rows {
        if let Some(id) = row.try_get::<_, Option<Uuid>>("id").map_err(unclear)? {
            let token: Uuid = row.try_get("token").map_err(unclear)?;
            *is_renewed.entry((id, token)).or_insert(false) |=
                row.try_get::<_, bool>("wrote").map_err(unclear)?;
        }
    }
    let beat = |asked: &Row<'_>| match is_renewed.get(&(asked.id, asked.token)) {
        Some(true) => Beat::Kept,
        // It was passed because it is locked: it may be anyone's by now.
        Some(false) => Beat::Unsure,
        None => Beat::Lost,
    };
    Ok(asked.iter().map(beat).collect())
}

/// Leases in one statement.
const PART_MAX: usize = 1_000;
