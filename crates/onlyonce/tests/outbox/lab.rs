//! A database with messages, and a sink that does what a test says and notes what it took.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::outbox::{Message, Relay, RelayOptions, Sink, SinkError};
use onlyonce::store::postgres::PostgresStore;
use servers::Postgres;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

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
        let relay = Relay::open_with(&self.url, sink, options).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(relay.run_until(async { drop(stopped.await) }));
        Running { stop, task }
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

/// A relay at work. Dropped, it goes on.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn shut_down(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(WAIT_MAX, self.task).await.expect("it stops").unwrap();
    }

    /// As if its process were killed.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
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

/// What the sink does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Take,
    /// Takes it, and does not answer.
    TakeSilently,
    /// Takes it when the test says so.
    TakeAtGate,
    Refuse,
    BeAway,
    Panic,
}

/// A sink and its log; clones share the log.
#[derive(Clone)]
pub(crate) struct Book {
    pub(crate) taken: Arc<Mutex<Vec<Taken>>>,
    decide: Arc<dyn Fn(&Message) -> Does + Send + Sync>,
    /// Told when a message arrives at the gate.
    pub(crate) arrived: Arc<Notify>,
    pub(crate) gate: Arc<Notify>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) payload: String,
}

impl Book {
    pub(crate) fn new(decide: impl Fn(&Message) -> Does + Send + Sync + 'static) -> Self {
        Self {
            taken: Arc::default(),
            decide: Arc::new(decide),
            arrived: Arc::default(),
            gate: Arc::default(),
        }
    }

    pub(crate) fn taking() -> Self {
        Self::new(|_| Does::Take)
    }

    /// The same log with another sink.
    pub(crate) fn and(&self, decide: impl Fn(&Message) -> Does + Send + Sync + 'static) -> Self {
        Self { taken: self.taken.clone(), ..Self::new(decide) }
    }

    pub(crate) fn payloads(&self) -> Vec<String> {
        self.taken.lock().unwrap().iter().map(|taken| taken.payload.clone()).collect()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.taken.lock().unwrap().iter().map(|taken| taken.id.clone()).collect()
    }

    /// Waits until so many deliveries were taken.
    pub(crate) async fn until_taken(&self, count: usize) {
        let wait = async {
            while self.payloads().len() < count {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        let in_time = tokio::time::timeout(WAIT_MAX, wait).await;
        assert!(in_time.is_ok(), "{:?} instead of {count}", self.payloads());
    }

    fn take(&self, message: &Message) {
        self.taken.lock().unwrap().push(Taken {
            id: message.id.clone(),
            key: message.key.clone(),
            payload: String::from_utf8(message.payload.to_vec()).unwrap(),
        });
    }
}

impl Sink for Book {
    async fn send(&self, message: &Message) -> Result<(), SinkError> {
        match (self.decide)(message) {
            Does::Take => self.take(message),
            Does::TakeSilently => {
                self.take(message);
                self.arrived.notify_one();
                std::future::pending().await
            }
            Does::TakeAtGate => {
                self.arrived.notify_one();
                self.gate.notified().await;
                self.take(message);
            }
            Does::Refuse => return Err(SinkError::refused("I do not like it")),
            Does::BeAway => return Err(SinkError::unavailable("nobody is there")),
            Does::Panic => panic!("the sink has a bug"),
        }
        Ok(())
    }
}

/// A short lease and short pauses.
pub(crate) fn quick() -> RelayOptions {
    RelayOptions::new()
        .with_lease(Duration::from_secs(1))
        .with_retry_pause(Duration::from_millis(1))
        .with_poll_max(Duration::from_millis(50))
}

/// A test's condition comes true within this, or never.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
const LOOK_PAUSE: Duration = Duration::from_millis(10);
