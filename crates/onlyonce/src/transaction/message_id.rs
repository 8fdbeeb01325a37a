//! What a message is called: the same at every delivery, and never the same for two messages.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::hex;

/// The id of a message, by which a consumer knows that it has seen it: see
/// [`Transactions::consume`](super::Transactions::consume).
///
/// It names the *message*. A broker also numbers its *deliveries* (a receipt handle, a delivery tag, the number of the
/// attempt): those change at every delivery, and a consumer that goes by them does everything twice.
///
/// ```
/// use onlyonce::transaction::MessageId;
///
/// // Two pairs never make one id.
/// assert_ne!(MessageId::of_cloud_event("/a", "b/c"), MessageId::of_cloud_event("/a/b", "c"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(Box<str>);

impl MessageId {
    /// Of a CloudEvent: `source` and `id` together, because an `id` is unique only within its source. The delivery has no
    /// id of its own; `time` is when it happened, and tells nothing.
    pub fn of_cloud_event(source: &str, id: &str) -> Self {
        Self::of("cloudevent", &[source, id])
    }

    /// Of a Kafka record: where it lies. The same record is read again from the same place after a rebalance.
    ///
    /// `topic_id` tells apart topics that have one name: a topic that is deleted and made again, or one of another cluster,
    /// counts its offsets from 0 again, and its records would be taken for those that were seen before. Pass the topic's UUID
    /// (Kafka 2.8 and later: `kafka-topics.sh --describe`, or the Metadata response), or a name of your own that you change
    /// whenever the topic is made again or the cluster is another one. The same text at every delivery: with another one all
    /// records are new.
    ///
    /// A producer that sends one message twice without `enable.idempotence` makes two records: use
    /// [`of_kafka_header`](Self::of_kafka_header) for those. The offset that a consumer has committed is about deliveries,
    /// and does not make its effects idempotent.
    pub fn of_kafka_record(topic_id: &str, topic: &str, partition: i32, offset: i64) -> Self {
        Self::of("kafka record", &[topic_id, topic, &partition.to_string(), &offset.to_string()])
    }

    /// Of a Kafka record whose producer puts an id of the message into a header: the same in every record of it, wherever
    /// they lie. Our outbox sends such an id.
    pub fn of_kafka_header(topic: &str, id: &str) -> Self {
        Self::of("kafka header", &[topic, id])
    }

    /// Of an activity of a workflow (Temporal): the run of the workflow and the activity, because an activity id is unique
    /// only within its run. The number of the attempt and the task token are of a delivery.
    pub fn of_activity(run_id: &str, activity_id: &str) -> Self {
        Self::of("activity", &[run_id, activity_id])
    }

    /// Of a webhook (Standard Webhooks): the header `webhook-id`, which the sender repeats at every retry. The header
    /// `webhook-timestamp` is of the delivery. Verify the signature first; `sender` tells apart senders whose ids may be
    /// the same.
    pub fn of_webhook(sender: &str, webhook_id: &str) -> Self {
        Self::of("webhook", &[sender, webhook_id])
    }

    /// Of anything else: a `kind` of your own, and all that tells two messages apart.
    pub fn of(kind: &str, parts: &[&str]) -> Self {
        let mut text = format!("{}:{kind}", kind.len());
        for part in parts {
            text += &format!(" {}:{part}", part.len());
        }
        if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
            let digest: [u8; 32] = Sha256::digest(&text).into();
            text = format!("sha256:{}", hex::encode(&digest));
        }
        Self(text.into())
    }

    /// As it is kept in the inbox.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for MessageId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A longer text is kept as its digest: an index of Postgres does not take long keys. So is a text with a NUL, which Postgres
/// does not take at all.
const TEXT_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    // R144, R146, R147
    #[test]
    fn two_messages_never_have_one_id() {
        let ids = [
            MessageId::of_cloud_event("/a", "b"),
            MessageId::of_cloud_event("/b", "b"),
            MessageId::of_cloud_event("/a", "c"),
            MessageId::of_cloud_event("/a 1:b", ""),
            MessageId::of_cloud_event("", "/a 1:b"),
            MessageId::of_kafka_record("t1", "orders", 1, 23),
            MessageId::of_kafka_record("t2", "orders", 1, 23),
            MessageId::of_kafka_record("t1", "orders", 12, 3),
            MessageId::of_kafka_record("t1", "orders1", 2, 3),
            MessageId::of_kafka_header("/a", "b"),
            MessageId::of_activity("/a", "b"),
            MessageId::of_activity("run 2", "b"),
            MessageId::of_webhook("/a", "b"),
            MessageId::of("webhook 2:/a", &["b"]),
        ];
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    // R144, R146, R147
    #[test]
    fn a_message_has_the_same_id_at_every_delivery() {
        let id = || MessageId::of_activity("run-1", "charge");
        assert_eq!(id(), id());
        assert_eq!(id().as_str(), "8:activity 5:run-1 6:charge");
        assert_eq!(
            MessageId::of_kafka_record("t", "o", 0, 7).to_string(),
            "12:kafka record 1:t 1:o 1:0 1:7"
        );
    }

    #[test]
    fn an_id_with_a_nul_is_kept_as_a_digest() {
        let ids = ["a\0", "a\0b", "\0a", "a"].map(|id| MessageId::of_webhook("shop", id));
        assert!(ids.iter().all(|id| !id.as_str().contains('\0')), "{ids:?}");
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn a_long_id_is_kept_as_a_digest() {
        let long = "7".repeat(2_000);
        let id = MessageId::of_cloud_event(&long, "1");
        assert!(id.as_str().len() < 100, "{id}");
        assert_ne!(id, MessageId::of_cloud_event(&long, "2"));
    }
}
