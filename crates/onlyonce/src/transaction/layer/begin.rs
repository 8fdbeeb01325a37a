//! A request until its operation is begun: on the connection of its client, so that a client that hangs up ends its wait.

use std::time::Duration;

use http::Response;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::work::{Attempted, Work, roll_back};
use crate::http::Body;
use crate::once::Refusal;
use crate::policy::InFlight;
use crate::problem::Problem;
use crate::transaction::over_sqlx::begin;
use crate::transaction::retry::{RETRIES_MAX, RETRY_PAUSE};
use crate::transaction::wait::begin_within;
use crate::transaction::{Begun, SqlxTx};

/// An operation that is the caller's.
pub(super) struct Mine {
    pub(super) tx: SqlxTx,
    /// Its place among the operations under way.
    pub(super) place: OwnedSemaphorePermit,
}

impl Work {
    /// Begins the operation, and again after a conflict. If it is not the caller's, its answer.
    pub(super) async fn begin(&self) -> Result<Mine, Response<Body>> {
        let wait_end = match self.rules.policy.in_flight() {
            InFlight::Reject => None,
            InFlight::Wait(wait) => Some(Instant::now() + wait.min(WAIT_MAX)),
        };
        let mut retries = 0;
        loop {
            match self.try_begin(wait_end).await.map_err(|stopped| *stopped) {
                Ok(mine) => return Ok(mine),
                Err(Attempted::Conflict(_)) if retries < RETRIES_MAX => {}
                Err(Attempted::Ended(response) | Attempted::Conflict(response)) => {
                    return Err(response);
                }
            }
            sleep(RETRY_PAUSE * 2_u32.pow(retries)).await;
            retries += 1;
        }
    }

    async fn try_begin(&self, wait_end: Option<Instant>) -> Result<Mine, Box<Attempted>> {
        let place = self.place()?;
        let (statements, pool) = (&self.rules.statements, &self.rules.pool);
        let begun = begin(statements, pool, self.asked.parameters.clone()).await;
        match (begun, wait_end) {
            (Ok(Begun::InProgress { .. }), Some(wait_end)) => {
                drop(place);
                self.wait(wait_end).await
            }
            (begun, _) => Ok(Mine { tx: self.begun(begun)?, place }),
        }
    }

    /// Waits while another request is at it, without a connection of the pool, and without a place among those that
    /// execute.
    async fn wait(&self, end: Instant) -> Result<Mine, Box<Attempted>> {
        let Some(_waiter) = self.rules.waiters.enter(self.asked.id, self.asked.who) else {
            return Err(Box::new(Attempted::Ended(self.refused(&Refusal::InProgress))));
        };
        let (statements, pool) = (&self.rules.statements, &self.rules.pool);
        let wait = end.saturating_duration_since(Instant::now());
        let tx = self.begun(begin_within(statements, pool, &self.asked.parameters, wait).await)?;
        match self.place() {
            Ok(place) => Ok(Mine { tx, place }),
            Err(overloaded) => {
                roll_back(tx).await;
                Err(overloaded)
            }
        }
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, Box<Attempted>> {
        let place = self.rules.room.operation();
        place.ok_or_else(|| Box::new(Attempted::Ended(self.told(Problem::overloaded()))))
    }
}

/// A wait without a bound is bounded.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
