//! What a statement answered: the store's time, and what it says of each id.

use std::collections::HashMap;

use tokio_postgres::Row;
use uuid::Uuid;

use super::columns::record;
use super::sql_error::{SqlError, unclear};
use super::value::Moment;
use crate::clock::StoreTime;
use crate::record::{Record, Revision, Token};
use crate::scope::OperationId;
use crate::store::StoreError;

/// An answer. Members of a batch that are not in it lost their guard or their race.
pub(super) struct Answer {
    pub(super) now: StoreTime,
    /// The records that were there, each in a row.
    there: HashMap<OperationId, Row>,
    written: HashMap<OperationId, Revision>,
}

impl Answer {
    pub(super) fn read(rows: Vec<Row>) -> Result<Self, SqlError> {
        let (mut now, mut there, mut written) = (None, HashMap::new(), HashMap::new());
        for row in rows {
            let Moment(at) = row.try_get("now").map_err(unclear)?;
            now = Some(at);
            read_written(&row, &mut written).map_err(unclear)?;
            if let Some(id) = row.try_get::<_, Option<Uuid>>("id").map_err(unclear)? {
                there.insert(OperationId::from_bytes(id.into_bytes()), row);
            }
        }
        Ok(Self { now: now.ok_or(SqlError::Moved)?, there, written })
    }

    /// The revision of the record that the statement wrote.
    pub(super) fn written(&self, id: OperationId) -> Option<Revision> {
        self.written.get(&id).copied()
    }

    /// The record that was there, if it reads.
    pub(super) fn record(&self, id: OperationId) -> Result<Option<Record>, StoreError> {
        self.there.get(&id).map(record).transpose()
    }

    /// The ids of the records that were there.
    pub(super) fn ids(&self) -> impl ExactSizeIterator<Item = OperationId> + '_ {
        self.there.keys().copied()
    }
}

fn read_written(
    row: &Row,
    written: &mut HashMap<OperationId, Revision>,
) -> Result<(), tokio_postgres::Error> {
    let ids: Option<Vec<Uuid>> = row.try_get("ids")?;
    let tokens: Option<Vec<Uuid>> = row.try_get("tokens")?;
    let counts: Option<Vec<i64>> = row.try_get("counts")?;
    let revisions = tokens.unwrap_or_default().into_iter().zip(counts.unwrap_or_default());
    for (id, (token, count)) in ids.unwrap_or_default().into_iter().zip(revisions) {
        let (token, count) = (Token::from_bytes(token.into_bytes()), count.cast_unsigned());
        written.insert(OperationId::from_bytes(id.into_bytes()), Revision { token, count });
    }
    Ok(())
}
