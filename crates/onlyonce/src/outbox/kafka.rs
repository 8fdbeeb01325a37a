//! Messages as records of Kafka.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rskafka::BackoffConfig;
use rskafka::chrono::DateTime;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;
use rustls::ClientConfig;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::link::Link;
use super::{Message, Sink, SinkError, tls};

/// Produces each message to the topic of its name, and waits until all in-sync replicas have it (`acks=all`).
///
/// 1. The record's key is the message's key, its value the payload, its time when the message was added. The headers
///    `onlyonce-message-id` and `onlyonce-topic` have the message's id and topic.
/// 2. The partition is murmur2 of the key, as the Java client chooses it, so that other producers agree. A message without a
///    key goes to the partition of its id. If partitions are added to a topic, its keys move, as with every other producer.
/// 3. The producer is not idempotent: a record whose answer was lost is produced again. Consumers must recognise it by
///    `onlyonce-message-id`. One that the broker has throttled is, too: give the client `onlyonce-relay` no produce quota.
/// 4. Refused: a topic that is not there or not ours to write to, a message that is larger than the broker or the topic
///    allows, one that the topic's rules forbid. Everything else is an outage.
pub struct Kafka {
    brokers: Vec<String>,
    prefix: String,
    tls: Option<Arc<ClientConfig>>,
    login: Option<SaslConfig>,
    link: Link<Connected>,
}

/// This machine trusts no certificate, so no broker could prove who it is. Install the certificates of the system.
#[derive(Debug, thiserror::Error)]
#[error("this machine trusts no certificate")]
pub struct NoTrustedCertificates;

impl Kafka {
    /// The brokers to ask first, such as `broker-1:9092,broker-2:9092`. They are connected to when there is a message.
    pub fn new(brokers: &str) -> Self {
        let brokers = brokers.split(',').map(|broker| broker.trim().to_owned());
        let brokers = brokers.filter(|broker| !broker.is_empty()).collect();
        Self { brokers, prefix: String::new(), tls: None, login: None, link: Link::new() }
    }

    /// Puts `prefix` in front of each topic. None by default.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Encrypts the connections; brokers must have certificates that this machine trusts. Not encrypted by default.
    ///
    /// # Errors
    /// If this machine trusts none.
    pub fn with_tls(mut self) -> Result<Self, NoTrustedCertificates> {
        self.tls = Some(Arc::new(tls::by_machine().ok_or(NoTrustedCertificates)?));
        Ok(self)
    }

    /// Logs in by SASL PLAIN. Use [`with_tls`](Self::with_tls), too: the password is sent as it is.
    #[must_use]
    pub fn with_plain_login(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let credentials = Credentials::new(name.into(), password.into());
        Self { login: Some(SaslConfig::Plain(credentials)), ..self }
    }

    /// Logs in by SASL SCRAM-SHA-512.
    #[must_use]
    pub fn with_scram_login(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        let credentials = Credentials::new(name.into(), password.into());
        Self { login: Some(SaslConfig::ScramSha512(credentials)), ..self }
    }

    async fn connect(&self) -> Result<Connected, Error> {
        let mut builder = ClientBuilder::new(self.brokers.clone()).client_id("onlyonce-relay");
        builder = builder.backoff_config(ONE_TRY);
        if let Some(tls) = &self.tls {
            builder = builder.tls_config(tls.clone());
        }
        if let Some(login) = &self.login {
            builder = builder.sasl_config(login.clone());
        }
        let client = builder.build().await?;
        Ok(Connected { client, counts: Mutex::default(), partitions: Mutex::default() })
    }

    async fn try_send(&self, message: &Message) -> Result<(), SinkError> {
        let topic = format!("{}{}", self.prefix, message.topic);
        let lent = self.link.lend(self.connect()).await.map_err(SinkError::unavailable)?;
        let sent = lent.produce(topic, message).await;
        if !matches!(sent, Err(SinkError::Unavailable(_))) {
            lent.give_back();
        }
        sent
    }
}

impl Sink for Kafka {
    async fn send(&self, message: &Message) -> Result<(), SinkError> {
        let sent = timeout(ANSWER_WAIT_MAX, self.try_send(message)).await;
        sent.unwrap_or_else(|elapsed| Err(SinkError::unavailable(elapsed)))
    }
}

struct Connected {
    client: Client,
    /// How many partitions a topic has, and when that was asked.
    counts: Mutex<HashMap<String, (usize, Instant)>>,
    /// A connection each, to the partition's leader.
    partitions: Mutex<HashMap<(String, i32), Arc<PartitionClient>>>,
}

impl Connected {
    async fn produce(&self, topic: String, message: &Message) -> Result<(), SinkError> {
        let count = self.partition_count(&topic).await.map_err(judge)?;
        let Some(partition) = partition_of(message, count) else {
            return Err(SinkError::refused(format!("there is no topic {topic:?}")));
        };
        let partition = self.partition(topic, partition).await.map_err(judge)?;
        let produced = partition.produce(vec![record(message)], Compression::NoCompression);
        produced.await.map(drop).map_err(judge)
    }

    /// Zero if there is no such topic.
    async fn partition_count(&self, topic: &str) -> Result<usize, Error> {
        let mut counts = self.counts.lock().await;
        if let Some((count, asked_at)) = counts.get(topic)
            && asked_at.elapsed() < COUNTS_AGE_MAX
        {
            return Ok(*count);
        }
        let (topics, now) = (self.client.list_topics().await?, Instant::now());
        let named = topics.into_iter().map(|topic| (topic.name, (topic.partitions.len(), now)));
        *counts = named.collect();
        Ok(counts.get(topic).map_or(0, |(count, _)| *count))
    }

    async fn partition(
        &self,
        topic: String,
        partition: i32,
    ) -> Result<Arc<PartitionClient>, Error> {
        let mut partitions = self.partitions.lock().await;
        let name = (topic, partition);
        if let Some(known) = partitions.get(&name) {
            return Ok(known.clone());
        }
        let unknown = UnknownTopicHandling::Error;
        let made = self.client.partition_client(name.0.clone(), partition, unknown).await?;
        if partitions.len() >= PARTITIONS_MAX {
            partitions.clear();
        }
        Ok(partitions.entry(name).or_insert_with(|| Arc::new(made)).clone())
    }
}

fn record(message: &Message) -> Record {
    let headers = [("onlyonce-message-id", &message.id), ("onlyonce-topic", &message.topic)];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.clone().into_bytes()));
    Record {
        key: message.key.clone().map(String::into_bytes),
        value: Some(message.payload.to_vec()),
        headers: BTreeMap::from(headers),
        timestamp: DateTime::from_timestamp_millis(message.created_at.as_ms()).unwrap_or_default(),
    }
}

/// Where the Java client would produce it; `None` if there is no partition.
fn partition_of(message: &Message, count: usize) -> Option<i32> {
    let hashed = message.key.as_ref().unwrap_or(&message.id);
    let positive = murmur2(hashed.as_bytes()) & 0x7fff_ffff;
    positive.checked_rem(u32::try_from(count).ok()?)?.try_into().ok()
}

/// MurmurHash2 with the seed of Kafka's `Utils.murmur2`.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash = SEED ^ (bytes.len() as u32);
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// What an error means for the message.
fn judge(error: Error) -> SinkError {
    match &error {
        Error::ServerError { protocol_error, .. } if is_refusal(*protocol_error) => {
            SinkError::refused(error)
        }
        _ => SinkError::unavailable(error),
    }
}

fn is_refusal(error: ProtocolError) -> bool {
    matches!(
        error,
        ProtocolError::CorruptMessage
            | ProtocolError::UnknownTopicOrPartition
            | ProtocolError::MessageTooLarge
            | ProtocolError::InvalidTopicException
            | ProtocolError::RecordListTooLarge
            | ProtocolError::TopicAuthorizationFailed
            | ProtocolError::ClusterAuthorizationFailed
            | ProtocolError::InvalidTimestamp
            | ProtocolError::PolicyViolation
            | ProtocolError::InvalidRecord
            | ProtocolError::UnsupportedForMessageFormat
    )
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Kafka");
        shown.field("brokers", &self.brokers).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// The relay tries again, and knows when.
const ONE_TRY: BackoffConfig = BackoffConfig {
    init_backoff: Duration::from_millis(1),
    max_backoff: Duration::from_millis(1),
    base: 2.0,
    deadline: Some(Duration::ZERO),
};
/// How long a topic's count of partitions is believed: as long as the Java client does.
const COUNTS_AGE_MAX: Duration = Duration::from_secs(300);
/// Connections that are kept.
const PARTITIONS_MAX: usize = 1_000;
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::StoreTime;

    // The examples of Kafka's own UtilsTest.
    #[test]
    fn murmur2_is_that_of_the_java_client() {
        let examples = [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (text, expected) in examples {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), expected, "{text}");
        }
    }

    fn message(key: Option<&str>) -> Message {
        Message {
            id: "8d777f38-5d3d-4fec-815d-20f7496026dc".to_owned(),
            topic: "charges".to_owned(),
            key: key.map(str::to_owned),
            payload: bytes::Bytes::from_static(b"7998"),
            created_at: StoreTime::from_ms(1_794_924_127_123),
            leased_at: StoreTime::from_ms(0),
            refusals: 0,
        }
    }

    #[test]
    fn a_key_has_one_partition_and_a_message_without_a_key_always_the_same() {
        assert_eq!(partition_of(&message(Some("abc")), 7), Some(479_470_107 % 7));
        assert_eq!(partition_of(&message(Some("21")), 5), Some((-973_932_308_i32 & i32::MAX) % 5));
        assert_eq!(partition_of(&message(None), 12), partition_of(&message(None), 12));
        assert_eq!(partition_of(&message(None), 0), None);
    }

    #[test]
    fn a_record_has_the_key_the_payload_and_the_id() {
        let record = record(&message(Some("acct_1")));
        assert_eq!(record.key.as_deref(), Some(&b"acct_1"[..]));
        assert_eq!(record.value.as_deref(), Some(&b"7998"[..]));
        assert_eq!(record.timestamp.timestamp_millis(), 1_794_924_127_123);
        let id = message(None).id.into_bytes();
        assert_eq!(record.headers["onlyonce-message-id"], id);
        assert_eq!(record.headers["onlyonce-topic"], b"charges");
    }
}
