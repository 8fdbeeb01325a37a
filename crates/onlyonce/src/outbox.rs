//! Ships the messages of transactions to a broker or a webhook, at least once and in order.
//!
//! A message is added in the transaction of its effect, by
//! [`PgTx::outbox`](crate::transaction::PgTx::outbox), by the SQL function `outbox`, or in a SQLite file by
//! `SqliteTx::outbox`: it is there if the effect is, and is seen by nobody before COMMIT. A [`Relay`] ships what was
//! committed.
//!
//! 1. **At least once.** A message is deleted after the [`Sink`] has taken it. A relay that dies in between leaves it, and
//!    another relay ships it again, with the same [`id`](Message::id): consumers must ignore an id that they have seen.
//! 2. **In order.** Of one topic and key, a message is sent after the one before it was taken. A duplicate may come later.
//!    Messages without a key have no order.
//! 3. **Many relays** share the work by leases: rows in the database, with the database's time. No transaction is open
//!    and no row is locked while a sink is waited for.
//! 4. **An outage costs nothing.** While the sink is [unavailable](SinkError::Unavailable), or refuses the messages of several
//!    keys of a topic and takes none, messages of that topic wait and no attempt is counted.
//! 5. **A refusal is counted** if the sink takes others. A message that it [refuses](SinkError::Refused) is tried again after a
//!    pause that doubles, and is parked at the limit: it keeps the later messages of its key waiting, and no others. [`Parked`]
//!    lists parked messages with their errors, and retries or discards them.
//!
//! The messages of one key are shipped one by one, each in a round trip to the sink and two to the database. An idle relay
//! finds a new message within [`with_poll_max`](RelayOptions::with_poll_max). docs/outbox.md is for operators.
//!
//! ```no_run
//! use onlyonce::outbox::{Message, Relay, Sink, SinkError};
//!
//! struct Print;
//!
//! impl Sink for Print {
//!     async fn send(&self, message: &Message) -> Result<(), SinkError> {
//!         println!("{} {}: {} bytes", message.topic, message.id, message.payload.len());
//!         Ok(())
//!     }
//! }
//!
//! # async fn relay() -> Result<(), Box<dyn std::error::Error>> {
//! let relay = Relay::open("postgres://shop@db.internal/shop?sslmode=verify-full", Print).await?;
//! relay.run_until(async { drop(tokio::signal::ctrl_c().await) }).await;
//! # Ok(())
//! # }
//! ```

mod backoff;
mod counts;
mod health;
#[cfg(feature = "outbox-kafka")]
mod kafka;
mod leasing;
#[cfg(any(feature = "outbox-kafka", feature = "outbox-nats"))]
mod link;
mod message;
#[cfg(feature = "outbox-nats")]
mod nats;
mod options;
mod parked;
mod postgres_parked;
mod postgres_queue;
mod queue;
#[cfg(feature = "redis")]
mod redis_stream;
mod relay;
mod sending;
#[cfg(feature = "sqlite")]
mod sqlite_file;
#[cfg(feature = "sqlite")]
mod sqlite_parked;
#[cfg(feature = "sqlite")]
mod sqlite_queue;
#[cfg(any(feature = "outbox-kafka", feature = "outbox-nats"))]
mod tls;
#[cfg(feature = "outbox-webhook")]
mod webhook;

pub use self::counts::RelayCounts;
#[cfg(feature = "outbox-kafka")]
pub use self::kafka::{Kafka, NoTrustedCertificates};
pub use self::message::{Message, Sink, SinkError};
#[cfg(feature = "outbox-nats")]
pub use self::nats::{Nats, NatsAddressError};
pub use self::options::RelayOptions;
pub use self::parked::{
    OutboxError, OutboxStatus, Parked, ParkedFilter, ParkedMessage, TopicStatus,
};
#[cfg(feature = "redis")]
pub use self::redis_stream::RedisStreams;
pub use self::relay::Relay;
#[cfg(feature = "sqlite")]
pub use self::sqlite_file::OutboxFileError;
#[cfg(feature = "outbox-webhook")]
pub use self::webhook::{Webhook, WebhookError};
