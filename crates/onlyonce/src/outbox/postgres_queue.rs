//! The messages of a Postgres schema, as a relay sees them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::options::{RETRY_PAUSE_MAX, RelayOptions};
use super::queue::{Found, LANES_MAX, Lane, Leased, NewlyParked, OUTAGE_PAUSE, Queue, Walk};
use super::sending::{Outcome, Sent};
use super::{Message, SinkError};
use crate::clock::{StoreTime, as_ms};
use crate::record::Token;
use crate::store::BoxError;
use crate::store::postgres::{PostgresOpenError, PreparedConnection};

/// The relay's statements, on a connection.
#[derive(Debug)]
pub(super) struct PostgresQueue {
    connection: PreparedConnection,
    walk: Walk,
}

impl PostgresQueue {
    pub(super) async fn open(url: &str, options: &RelayOptions) -> Result<Self, PostgresOpenError> {
        let after = if options.topic.is_some() { AFTER_IN_TOPIC } else { AFTER };
        let lease = include_str!("sql/lease.sql").replace("{after}", after);
        let texts = [&lease, include_str!("sql/shipped.sql"), include_str!("sql/failed.sql")];
        let texts = texts.map(str::to_owned);
        let connection = PreparedConnection::open(url, options.schema.as_deref(), texts.into());
        Ok(Self { connection: connection.await?, walk: Walk::default() })
    }

    async fn lease_due(
        &mut self,
        options: &RelayOptions,
        rows_max: usize,
    ) -> Result<Found, BoxError> {
        let (asked_at, lease) = (Instant::now(), Uuid::from_bytes(*Token::random().as_bytes()));
        let rows_max = i64::try_from(rows_max)?;
        let lanes_max = i64::try_from(LANES_MAX)?;
        let (topic, lane) = self.walk.go_on();
        let lease_ms = as_ms(options.lease) as f64;
        let params: [&(dyn ToSql + Sync); 7] =
            [&topic, &lane, &lanes_max, &rows_max, &lease, &lease_ms, &options.topic];
        let rows = self.connection.query(LEASE, &params).await?;
        let mut leased = Vec::with_capacity(rows.len());
        for row in &rows {
            if let Some(id) = row.try_get("id")? {
                let message = Arc::new(message(row, id)?);
                leased.push(Leased { message, id, lease, asked_at });
            }
        }
        let stopped = rows.first().map(last_visit).transpose()?.flatten();
        let is_idle = self.walk.note(!leased.is_empty(), stopped);
        Ok(Found { leased, is_idle })
    }

    async fn write_down(
        &mut self,
        outcomes: &mut Vec<Outcome>,
        options: &RelayOptions,
    ) -> Result<Vec<NewlyParked>, BoxError> {
        let is_shipped = |outcome: &Outcome| matches!(outcome.sent, Sent::Shipped);
        if outcomes.iter().any(is_shipped) {
            self.delete_shipped(outcomes.iter().filter(|outcome| is_shipped(outcome))).await?;
            outcomes.retain(|outcome| !is_shipped(outcome));
        }
        if outcomes.is_empty() {
            return Ok(Vec::new());
        }
        let parked = self.give_back(outcomes, options).await?;
        outcomes.clear();
        Ok(parked)
    }

    async fn delete_shipped(
        &mut self,
        shipped: impl Iterator<Item = &Outcome>,
    ) -> Result<(), BoxError> {
        let (ids, leases) = ids(shipped);
        let gone = self.connection.query(SHIPPED, &[&ids, &leases]).await?;
        if gone.len() < ids.len() {
            let late = ids.len() - gone.len();
            tracing::debug!(
                late,
                "messages were gone, or leased to another relay, when they were shipped"
            );
        }
        Ok(())
    }

    async fn give_back(
        &mut self,
        failed: &[Outcome],
        options: &RelayOptions,
    ) -> Result<Vec<NewlyParked>, BoxError> {
        let (ids, leases) = ids(failed.iter());
        let error = |outcome: &Outcome| outcome.sent.error().map(SinkError::text);
        let errors: Vec<_> = failed.iter().map(error).collect();
        let is_refusal = |outcome: &Outcome| outcome.sent.is_refusal();
        let refusals: Vec<_> = failed.iter().map(is_refusal).collect();
        let pauses = [options.retry_pause, RETRY_PAUSE_MAX, OUTAGE_PAUSE];
        let [first, longest, outage] = pauses.map(|pause| as_ms(pause) as f64);
        let params: [&(dyn ToSql + Sync); 8] =
            [&ids, &leases, &errors, &refusals, &options.attempts_max, &first, &longest, &outage];
        let mut parked = Vec::new();
        for row in self.connection.query(FAILED, &params).await? {
            if row.try_get("is_parked")? {
                let id = row.try_get::<_, Uuid>("id")?.to_string();
                parked.push(NewlyParked { id, topic: row.try_get("topic")? });
            }
        }
        Ok(parked)
    }
}

impl Queue for PostgresQueue {
    fn lease<'a>(
        &'a mut self,
        options: &'a RelayOptions,
        rows_max: usize,
    ) -> BoxFuture<'a, Result<Found, BoxError>> {
        Box::pin(self.lease_due(options, rows_max))
    }

    fn settle<'a>(
        &'a mut self,
        outcomes: &'a mut Vec<Outcome>,
        options: &'a RelayOptions,
    ) -> BoxFuture<'a, Result<Vec<NewlyParked>, BoxError>> {
        Box::pin(self.write_down(outcomes, options))
    }
}

fn ids<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> (Vec<Uuid>, Vec<Uuid>) {
    outcomes.map(|outcome| (outcome.leased.id, outcome.leased.lease)).unzip()
}

fn message(row: &Row, id: Uuid) -> Result<Message, BoxError> {
    Ok(Message {
        id: id.to_string(),
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        payload: row.try_get::<_, Vec<u8>>("payload")?.into(),
        created_at: StoreTime::from_ms(row.try_get("created_ms")?),
        leased_at: StoreTime::from_ms(row.try_get("now_ms")?),
        refusals: u32::try_from(row.try_get::<_, i32>("attempts")?)?,
    })
}

/// The lane where the call stopped; `None` after the last one.
fn last_visit(row: &Row) -> Result<Option<Lane>, BoxError> {
    let topic: Option<String> = row.try_get("next_topic")?;
    Ok(topic.zip(row.try_get("next_lane")?))
}

/// The lanes that come after one, for the statement that leases.
const AFTER: &str = "(o.topic, o.lane) > (h.topic, h.lane) AND $7::text IS NULL";
const AFTER_IN_TOPIC: &str = "o.topic = $7::text AND o.lane > h.lane";
/// The numbers of the statements.
const LEASE: usize = 0;
const SHIPPED: usize = 1;
const FAILED: usize = 2;
