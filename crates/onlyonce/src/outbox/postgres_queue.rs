//! The messages of a Postgres schema, as a relay sees them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::Message;
use super::options::{RETRY_PAUSE_MAX, RelayOptions};
use super::queue::{Ask, Found, LANES_MAX, Lane, Leased, NewlyParked, Queue, Settled, Verdict};
use crate::clock::{StoreTime, as_ms};
use crate::record::Token;
use crate::store::BoxError;
use crate::store::postgres::{PostgresOpenError, PreparedConnection};

/// The relay's statements, on a connection.
#[derive(Debug)]
pub(super) struct PostgresQueue {
    connection: PreparedConnection,
}

impl PostgresQueue {
    pub(super) async fn open(url: &str, options: &RelayOptions) -> Result<Self, PostgresOpenError> {
        let lease = |after| include_str!("sql/lease.sql").replace("{after}", after);
        let texts = vec![
            lease(AFTER),
            lease(AFTER_IN_TOPIC),
            lease(AFTER_IN_LANES),
            include_str!("sql/shipped.sql").to_owned(),
            include_str!("sql/failed.sql").to_owned(),
        ];
        let connection = PreparedConnection::open(url, options.schema.as_deref(), texts);
        Ok(Self { connection: connection.await? })
    }

    async fn lease_due(&mut self, ask: &Ask, lease_max: Duration) -> Result<Found, BoxError> {
        let (asked_at, lease) = (Instant::now(), Uuid::from_bytes(*Token::random().as_bytes()));
        let (rows_max, lanes_max) = (i64::try_from(ask.rows_max)?, i64::try_from(LANES_MAX)?);
        let suspects_max = i64::try_from(ask.suspects_max)?;
        let (topic, lane) = &ask.after;
        let lease_ms = as_ms(lease_max) as f64;
        let params: [&(dyn ToSql + Sync); 11] = [
            topic,
            lane,
            &lanes_max,
            &rows_max,
            &lease,
            &lease_ms,
            &ask.topic,
            &ask.except,
            &suspects_max,
            &ask.is_probe,
            &ask.lanes,
        ];
        let statement = match (&ask.topic, &ask.lanes) {
            (None, _) => LEASE,
            (Some(_), None) => LEASE_IN_TOPIC,
            (Some(_), Some(_)) => LEASE_IN_LANES,
        };
        let rows = self.connection.query(statement, &params).await?;
        let mut leased = Vec::with_capacity(rows.len());
        for row in &rows {
            if let Some(id) = row.try_get("id")? {
                let (message, is_suspect) =
                    (Arc::new(message(row, id)?), row.try_get("is_suspect")?);
                leased.push(Leased { message, id, lease, is_suspect, asked_at });
            }
        }
        let stopped = rows.first().map(last_visit).transpose()?.flatten();
        Ok(Found { leased, stopped })
    }

    async fn write_down(
        &mut self,
        settled: &mut Vec<Settled>,
        options: &RelayOptions,
    ) -> Result<Vec<NewlyParked>, BoxError> {
        let is_shipped = |settled: &Settled| settled.verdict == Verdict::Shipped;
        if settled.iter().any(is_shipped) {
            self.delete_shipped(settled.iter().filter(|settled| is_shipped(settled))).await?;
            settled.retain(|settled| !is_shipped(settled));
        }
        if settled.is_empty() {
            return Ok(Vec::new());
        }
        let parked = self.give_back(settled, options).await?;
        settled.clear();
        Ok(parked)
    }

    async fn delete_shipped(
        &mut self,
        shipped: impl Iterator<Item = &Settled>,
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
        failed: &[Settled],
        options: &RelayOptions,
    ) -> Result<Vec<NewlyParked>, BoxError> {
        let (ids, leases) = ids(failed.iter());
        let errors: Vec<_> = failed.iter().map(|failed| failed.error.as_deref()).collect();
        // `None`: the refusal is counted, and the pause goes by its number.
        let pause_ms = |failed: &Settled| match failed.verdict {
            Verdict::Later(pause) => Some(as_ms(pause) as f64),
            Verdict::Refused | Verdict::Shipped => None,
        };
        let pauses: Vec<_> = failed.iter().map(pause_ms).collect();
        let [first, longest] =
            [options.retry_pause, RETRY_PAUSE_MAX].map(|pause| as_ms(pause) as f64);
        let params: [&(dyn ToSql + Sync); 7] =
            [&ids, &leases, &errors, &pauses, &options.attempts_max, &first, &longest];
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
        ask: &'a Ask,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Found, BoxError>> {
        Box::pin(self.lease_due(ask, lease))
    }

    fn settle<'a>(
        &'a mut self,
        settled: &'a mut Vec<Settled>,
        options: &'a RelayOptions,
    ) -> BoxFuture<'a, Result<Vec<NewlyParked>, BoxError>> {
        Box::pin(self.write_down(settled, options))
    }
}

fn ids<'a>(settled: impl Iterator<Item = &'a Settled>) -> (Vec<Uuid>, Vec<Uuid>) {
    settled.map(|settled| (settled.leased.id, settled.leased.lease)).unzip()
}

fn message(row: &Row, id: Uuid) -> Result<Message, BoxError> {
    Ok(Message {
        id: id.to_string(),
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        payload: row.try_get::<_, Vec<u8>>("payload")?.into(),
        created_at: time(row, "created_ms")?,
        leased_at: StoreTime::from_ms(row.try_get("now_ms")?),
        refusals: count(row, "attempts")?,
    })
}

/// As near as a row tells it: one that somebody has changed by hand must not stop a relay, or hide others.
pub(super) fn time(row: &Row, column: &str) -> Result<StoreTime, tokio_postgres::Error> {
    Ok(StoreTime::from_ms(row.try_get::<_, f64>(column)?.floor() as i64))
}

pub(super) fn count(row: &Row, column: &str) -> Result<u32, tokio_postgres::Error> {
    Ok(u32::try_from(row.try_get::<_, i32>(column)?).unwrap_or(0))
}

/// The lane where the call stopped; `None` after the last one.
fn last_visit(row: &Row) -> Result<Option<Lane>, BoxError> {
    let topic: Option<String> = row.try_get("next_topic")?;
    Ok(topic.zip(row.try_get("next_lane")?))
}

/// The lanes that come after one, for the statement that leases.
const AFTER: &str =
    "(o.topic, o.lane) > (h.topic, h.lane) AND $7::text IS NULL AND $11::text[] IS NULL";
const AFTER_IN_TOPIC: &str = "o.topic = $7::text AND o.lane > h.lane AND $11::text[] IS NULL";
const AFTER_IN_LANES: &str =
    "o.topic = $7::text AND o.lane > h.lane AND o.lane = ANY ($11::text[])";
/// The numbers of the statements.
const LEASE: usize = 0;
const LEASE_IN_TOPIC: usize = 1;
const LEASE_IN_LANES: usize = 2;
const SHIPPED: usize = 3;
const FAILED: usize = 4;
