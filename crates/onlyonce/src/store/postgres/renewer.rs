//! The renewer: leases on a connection of their own, so that no batch can make one lapse.

use std::collections::HashSet;
use std::sync::Arc;

use super::inbox::Inbox;
use super::job::Renewal;
use super::link::Line;
use super::params::{token, uuid};
use super::round::MOVED;
use super::row::{self, Said, said};
use super::shared::Shared;
use super::trouble::{Cause, Trouble};
use super::value::{Uuid, Values};
use crate::record::Token;
use crate::scope::OperationId;
use crate::store::{Beat, BoxError, Lease};

/// Works until its queue is closed and empty.
pub(super) struct Renewer {
    pub(super) line: Line,
    pub(super) renewals: Inbox<Renewal>,
    pub(super) shared: Arc<Shared>,
}

impl Renewer {
    pub(super) async fn run(mut self) {
        while let Some(Renewal { held, lease, reply }) = self.renewals.recv().await {
            let mut beats = Vec::with_capacity(held.len());
            for part in held.chunks(PART_MAX) {
                let renewed = match self.renew(RENEW, part, lease).await {
                    // Others do not lapse because someone holds the row of one.
                    Err(Trouble::Blocked) => self.renew(RENEW_FREE, part, lease).await,
                    renewed => renewed,
                };
                beats.extend(renewed.unwrap_or_else(|_| vec![Beat::Unsure; part.len()]));
            }
            // A caller who no longer listens has dropped the call.
            let _ = reply.send(Ok(beats));
        }
    }

    async fn renew(
        &mut self,
        statement: usize,
        held: &[(OperationId, Token)],
        lease: Lease,
    ) -> Result<Vec<Beat>, Trouble> {
        let asked_at = self.shared.time.boot();
        let mut sorted = held.to_vec();
        sorted.sort_unstable_by_key(|(id, _)| *id);
        let known = self.shared.time.known();
        let ids = Values::of(&sorted, |(id, _)| uuid(id));
        let tokens = Values::of(&sorted, |(_, it)| token(*it));
        let lease_ms = lease.as_ms();
        let rows =
            self.line.query(statement, &[&known.0, &known.1, &ids, &tokens, &lease_ms]).await?;
        let unclear = |why: BoxError| Trouble::Unsure(Cause::new(why));
        let (mut kept, mut told) = (HashSet::new(), None);
        for row in &rows {
            match said(row).map_err(unclear)? {
                Said::Time(time) => told = Some(time),
                Said::Wrote(id) => drop(kept.insert((uuid(&id), revision_token(row)))),
                Said::There(..) => {}
            }
        }
        self.shared.time.tell(told.ok_or_else(|| unclear(MOVED.into()))?, asked_at);
        let otherwise = if statement == RENEW { Beat::Lost } else { Beat::Unsure };
        let beat =
            |(id, it): &(OperationId, Token)| match kept.contains(&(uuid(id), Some(token(*it)))) {
                true => Beat::Kept,
                false => otherwise,
            };
        Ok(held.iter().map(beat).collect())
    }
}

fn revision_token(row: &tokio_postgres::Row) -> Option<Uuid> {
    row::revision(row).map(|revision| token(revision.token))
}

/// The statements of this line, in the order in which it prepares them.
const RENEW: usize = 0;
/// Passes rows that someone has locked.
const RENEW_FREE: usize = 1;
/// Leases in one statement.
const PART_MAX: usize = 1_000;
