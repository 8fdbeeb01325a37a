//! A database with messages.

use onlyonce::outbox::{Relay, RelayOptions, Sink};
use onlyonce::store::postgres::PostgresStore;
use servers::Postgres;
use tokio_postgres::{Client, NoTls};

pub(crate) use crate::book::{Book, Does, LOOK_PAUSE, Running, Slow, WAIT_MAX, quick};

pub(crate) struct Lab {
    pub(crate) postgres: Postgres,
    pub(crate) url: String,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        PostgresStore::open(&url).await.unwrap().close().await;
        Self { postgres, url }
    }

    pub(crate) fn sql(&self, statements: &str) -> String {
        self.postgres.sql(&self.url, statements)
    }

    /// Messages that are not shipped.
    pub(crate) fn waiting(&self) -> String {
        self.sql("SELECT count(*) FROM onlyonce.outbox")
    }

    pub(crate) async fn session(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Commits an operation with one message; its id.
    pub(crate) async fn add(&self, topic: &str, key: Option<&str>, payload: &str) -> String {
        let client = self.session().await;
        let id = begin_with(&client, topic, key, payload).await;
        client.batch_execute("COMMIT").await.unwrap();
        id
    }

    pub(crate) async fn relay<S: Sink>(&self, sink: S, options: RelayOptions) -> Running {
        Running::start(Relay::open_with(&self.url, sink, options).await.unwrap())
    }

    /// Waits until `statement` says `expected`.
    pub(crate) async fn until(&self, statement: &str, expected: &str) {
        let wait = async {
            while self.sql(statement) != expected {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        let in_time = tokio::time::timeout(WAIT_MAX, wait).await;
        assert!(in_time.is_ok(), "{statement}: {}, not {expected}", self.sql(statement));
    }
}

/// Begins a transaction with one completed operation and one message; the message's id.
pub(crate) async fn begin_with(
    client: &Client,
    topic: &str,
    key: Option<&str>,
    payload: &str,
) -> String {
    client.batch_execute("BEGIN").await.unwrap();
    let begin =
        "SELECT token::text FROM onlyonce.begin('s', 'p', gen_random_uuid()::text, ''::bytea)";
    let token: String = client.query_one(begin, &[]).await.unwrap().get(0);
    let outbox = "SELECT onlyonce.outbox($1::text::uuid, $2, $3, $4)::text";
    let row = client.query_one(outbox, &[&token, &topic, &key, &payload.as_bytes()]).await.unwrap();
    client.execute("SELECT onlyonce.complete($1::text::uuid, 200)", &[&token]).await.unwrap();
    row.get(0)
}
