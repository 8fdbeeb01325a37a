//! Sample A: a claim in Redis beside a row in Postgres, and a reaper that resets what looks stale.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncTypedCommands, ExistenceCheck, SetExpiry, SetOptions};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::charges::Charges;
use super::layer_b::connect;
use super::{Asked, Reply, SampleError, Settings, layer_b, layer_c};

pub(super) struct RedisAndPostgres {
    redis: MultiplexedConnection,
    postgres: Client,
    _background: JoinSet<()>,
}

impl RedisAndPostgres {
    pub(super) async fn open(settings: &Settings) -> Result<Self, SampleError> {
        let redis = layer_c::connect(&settings.redis).await?;
        let mut background = JoinSet::new();
        let postgres = connect(&settings.postgres, &mut background).await?;
        postgres.batch_execute(TABLE).await?;
        let reaper = Reaper {
            redis: redis.clone(),
            postgres: connect(&settings.postgres, &mut background).await?,
            stale_after: settings.stale_after,
        };
        let every = settings.sweep_every;
        background.spawn(async move { reaper.run(every).await });
        Ok(Self { redis, postgres, _background: background })
    }

    pub(super) async fn handle(
        &self,
        asked: &Asked,
        charges: &Charges,
    ) -> Result<Reply, SampleError> {
        let hash = layer_b::hash(&asked.order.body);
        let mut redis = self.redis.clone();
        let claim = json!({ "hash": hash, "state": "in_progress" }).to_string();
        let options = expiring().conditional_set(ExistenceCheck::NX);
        if redis.set_options(&asked.key, claim, options).await?.is_none() {
            return self.replay(asked, &hash).await;
        }
        let insert = self.postgres.execute(INSERT, &[&asked.key, &asked.caller, &hash]).await?;
        if insert == 0 && self.postgres.execute(CLAIM_AGAIN, &[&asked.key]).await? == 0 {
            return self.stored(asked).await;
        }
        // An exception leaves the claim to the reaper.
        let reply = charges.charge(&asked.order).await?;
        let (status, body) = (i32::from(reply.status), reply.body.to_string());
        self.postgres.execute(COMPLETE, &[&asked.key, &status, &body]).await?;
        let done = json!({ "hash": hash, "status": reply.status, "body": reply.body });
        redis.set_options(&asked.key, done.to_string(), expiring()).await?;
        Ok(reply)
    }

    /// The defect: a claim that has no answer yet, and a value that has expired since, are replayed as well.
    async fn replay(&self, asked: &Asked, hash: &str) -> Result<Reply, SampleError> {
        let value = self.redis.clone().get(&asked.key).await?.unwrap_or_default();
        let value: Value = serde_json::from_str(&value).unwrap_or_default();
        if value["hash"].as_str().is_some_and(|first| first != hash) {
            return Ok(Reply::refused(409, "the key was used for another request"));
        }
        let status = value["status"].as_u64().and_then(|status| status.try_into().ok());
        Ok(Reply::new(status.unwrap_or(200), value["body"].clone()))
    }

    /// Redis has forgotten the key, Postgres has not.
    async fn stored(&self, asked: &Asked) -> Result<Reply, SampleError> {
        let row = self.postgres.query_one(SELECT, &[&asked.key]).await?;
        let status: Option<i32> = row.get(0);
        let body: Option<String> = row.get(1);
        let status = u16::try_from(status.unwrap_or(200))?;
        Ok(Reply::new(status, serde_json::from_str(body.as_deref().unwrap_or("null"))?))
    }
}

struct Reaper {
    redis: MultiplexedConnection,
    postgres: Client,
    stale_after: Duration,
}

impl Reaper {
    async fn run(mut self, every: Duration) {
        let mut ticks = tokio::time::interval(every);
        loop {
            ticks.tick().await;
            if let Err(error) = self.sweep().await {
                eprintln!("the reaper failed: {error}");
            }
        }
    }

    /// Deletes what has expired unless it is in progress, and resets what is in progress for too long. The defect: nobody
    /// asks whether its owner is alive, or has executed.
    async fn sweep(&mut self) -> Result<(), SampleError> {
        self.postgres.execute(DELETE_EXPIRED, &[&(TTL_S as f64)]).await?;
        let stale = self.postgres.query(RESET, &[&self.stale_after.as_secs_f64()]).await?;
        for row in stale {
            self.redis.del(row.get::<_, String>(0)).await?;
        }
        Ok(())
    }
}

fn expiring() -> SetOptions {
    SetOptions::default().with_expiration(SetExpiry::EX(TTL_S))
}

const TTL_S: u64 = 24 * 60 * 60;

/// The defect: `scope` is outside of the primary key.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS sample_a (
    key text PRIMARY KEY, scope text NOT NULL, hash text NOT NULL, state text NOT NULL, status integer, body text,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp())";
const INSERT: &str =
    "INSERT INTO sample_a (key, scope, hash, state) VALUES ($1, $2, $3, 'in_progress')
    ON CONFLICT DO NOTHING";
const CLAIM_AGAIN: &str =
    "UPDATE sample_a SET state = 'in_progress', claimed_at = clock_timestamp()
    WHERE key = $1 AND state = 'reset'";
const COMPLETE: &str =
    "UPDATE sample_a SET state = 'completed', status = $2, body = $3 WHERE key = $1";
const SELECT: &str = "SELECT status, body FROM sample_a WHERE key = $1";
const RESET: &str = "UPDATE sample_a SET state = 'reset'
    WHERE state = 'in_progress' AND claimed_at < clock_timestamp() - make_interval(secs => $1) RETURNING key";
const DELETE_EXPIRED: &str = "DELETE FROM sample_a WHERE key IN (SELECT key FROM sample_a
    WHERE state <> 'in_progress' AND claimed_at < clock_timestamp() - make_interval(secs => $1) LIMIT 5000)";
