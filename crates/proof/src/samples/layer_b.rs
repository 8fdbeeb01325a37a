//! Sample B: one table in Postgres, callers that poll it, and a clean-up by age.

use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use super::charges::Charges;
use super::{Asked, Reply, SampleError, Settings};

pub(super) struct Postgres {
    client: Client,
    _background: JoinSet<()>,
}

impl Postgres {
    pub(super) async fn open(settings: &Settings) -> Result<Self, SampleError> {
        let mut background = JoinSet::new();
        let client = connect(&settings.postgres, &mut background).await?;
        client.batch_execute(TABLE).await?;
        let cleaner = connect(&settings.postgres, &mut background).await?;
        let (every, age) = (settings.sweep_every, settings.stale_after);
        background.spawn(async move { clean_up(cleaner, every, age).await });
        Ok(Self { client, _background: background })
    }

    pub(super) async fn handle(
        &self,
        asked: &Asked,
        charges: &Charges,
    ) -> Result<Reply, SampleError> {
        let hash = hash(&asked.order.body);
        if self.client.execute(INSERT, &[&asked.key, &hash]).await? == 0 {
            return self.poll(asked, &hash).await;
        }
        match charges.charge(&asked.order).await {
            Ok(reply) => {
                let (status, body) = (i32::from(reply.status), reply.body.to_string());
                // The defect: whoever owns the row by now, it is overwritten.
                self.client.execute(COMPLETE, &[&asked.key, &status, &body]).await?;
                Ok(reply)
            }
            // The defect: the effect may exist, and nobody will ever be told.
            Err(raised) => {
                self.client.execute(FAIL, &[&asked.key]).await?;
                Err(raised.into())
            }
        }
    }

    async fn poll(&self, asked: &Asked, hash: &str) -> Result<Reply, SampleError> {
        for _ in 0..POLLS_MAX {
            if let Some(row) = self.client.query_opt(SELECT, &[&asked.key]).await? {
                if row.get::<_, &str>(0) != hash {
                    return Ok(Reply::refused(422, "the key was used for another request"));
                }
                match row.get(1) {
                    "completed" => {
                        let status = u16::try_from(row.get::<_, i32>(2))?;
                        return Ok(Reply::new(status, serde_json::from_str(row.get(3))?));
                    }
                    "failed" => return Ok(Reply::refused(500, "the request failed")),
                    _ => {}
                }
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(Reply::refused(504, "the first request is still running"))
    }
}

/// The defect: rows are deleted by age, whatever their state.
async fn clean_up(client: Client, every: Duration, age: Duration) {
    let mut ticks = tokio::time::interval(every);
    loop {
        ticks.tick().await;
        if let Err(error) = client.execute(DELETE, &[&age.as_secs_f64()]).await {
            eprintln!("the clean-up failed: {error}");
        }
    }
}

pub(super) async fn connect(url: &str, driver: &mut JoinSet<()>) -> Result<Client, SampleError> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    driver.spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("the connection to Postgres ended: {error}");
        }
    });
    Ok(client)
}

/// SHA-256 of JSON; `serde_json` keeps the members of an object sorted. The article of B has BLAKE2b-256, which is as wide.
pub(super) fn hash(body: &Value) -> String {
    let digest = Sha256::digest(body.to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

const POLL_EVERY: Duration = Duration::from_millis(100);
/// Five seconds.
const POLLS_MAX: usize = 50;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS sample_b (
    key text PRIMARY KEY, hash text NOT NULL, state text NOT NULL DEFAULT 'in_progress', status integer, body text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp())";
const INSERT: &str = "INSERT INTO sample_b (key, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const SELECT: &str = "SELECT hash, state, status, body FROM sample_b WHERE key = $1";
const COMPLETE: &str =
    "UPDATE sample_b SET state = 'completed', status = $2, body = $3 WHERE key = $1";
const FAIL: &str = "UPDATE sample_b SET state = 'failed' WHERE key = $1";
const DELETE: &str =
    "DELETE FROM sample_b WHERE created_at < clock_timestamp() - make_interval(secs => $1)";
