//! Messages as entries of Redis Streams.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::sync::Mutex;

use super::{Message, Sink, SinkError};
use crate::store::BoxError;
use crate::store::redis::RedisOpenError;

/// Adds each message to the stream that is named as its topic, with the fields `id`, `key` (if it has one) and `payload`.
///
/// Redis keeps an entry as well as its `appendfsync` does, and does not recognise duplicates: consumers must, by `id`. A
/// stream grows until a consumer trims it. A stream whose name is taken by a value of another type refuses its messages;
/// every other error is an outage.
pub struct RedisStreams {
    client: Client,
    prefix: String,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl RedisStreams {
    /// The server at `url`, such as `redis://host:6379/0`. It is connected to when there is a message.
    ///
    /// # Errors
    /// If `url` is not an address.
    pub fn new(url: &str) -> Result<Self, RedisOpenError> {
        let client = Client::open(url).map_err(RedisOpenError::Address)?;
        Ok(Self { client, prefix: String::new(), connection: Mutex::new(None) })
    }

    /// Puts `prefix` in front of each topic. None by default.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The connection, made if there is none. Others wait meanwhile: they need the same one.
    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = &*kept {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WAIT_MAX))
            .set_response_timeout(Some(ANSWER_WAIT_MAX));
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(kept.insert(made).clone())
    }

    async fn add(&self, message: &Message) -> Result<(), RedisError> {
        let mut add = ::redis::cmd("XADD");
        add.arg(format!("{}{}", self.prefix, message.topic)).arg("*").arg("id").arg(&message.id);
        if let Some(key) = &message.key {
            add.arg("key").arg(key);
        }
        add.arg("payload").arg(&message.payload[..]);
        let mut connection = self.connection().await?;
        add.query_async::<String>(&mut connection).await.map(drop)
    }
}

impl Sink for RedisStreams {
    async fn send(&self, message: &Message) -> Result<(), SinkError> {
        let Err(error) = self.add(message).await else { return Ok(()) };
        if error.code() == Some(WRONG_TYPE) {
            return Err(SinkError::refused(told(error)));
        }
        // Also after READONLY: the server is a replica now, and the address may lead to the new primary.
        self.connection.lock().await.take();
        Err(SinkError::unavailable(told(error)))
    }
}

/// What operators are told. Of an answer only the code: its text can quote the command, with the key and the payload.
fn told(error: RedisError) -> BoxError {
    match error.code() {
        _ if error.is_io_error() => error.into(),
        Some(code) => format!("Redis answered {code}").into(),
        None => format!("the answer of Redis is no good: {}", error.category()).into(),
    }
}

impl std::fmt::Debug for RedisStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStreams").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

const WRONG_TYPE: &str = "WRONGTYPE";
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(2);
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
