//! A message, and what it is shipped to.

use std::fmt;

use bytes::Bytes;

use crate::clock::StoreTime;
use crate::store::BoxError;

/// A message of a committed transaction.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The same at every delivery: consumers recognise duplicates by it.
    pub id: String,
    /// What the message is about; a sink may choose its destination by it.
    pub topic: String,
    /// Messages of one topic and key are shipped in order. `None`: in any order.
    pub key: Option<String>,
    /// At most 1 MiB.
    pub payload: Bytes,
    /// When it was added to its transaction, by the database's clock.
    pub created_at: StoreTime,
    /// When this attempt began, by the database's clock.
    pub leased_at: StoreTime,
    /// How often the sink has refused it before.
    pub refusals: u32,
}

/// Without the key and the payload: they belong in no log.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Message");
        shown.field("id", &self.id).field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// What messages are shipped to: a broker, a webhook.
///
/// Up to [`with_in_flight_max`](super::RelayOptions::with_in_flight_max) messages are sent at the same time, never two of
/// one topic and key.
pub trait Sink: Send + Sync + 'static {
    /// Sends the message once. `Ok` says that it will not be lost: the message is deleted after that. The future is dropped
    /// when half of the lease is over, and the message is sent again later.
    fn send(&self, message: &Message) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// Why a message was not sent, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// No fault of the message: the sink is away, busy, or gave no answer. The relay sends the message again without an end; it
    /// only probes the topic meanwhile, unless the sink takes others of it.
    #[error("the sink is unavailable")]
    Unavailable(#[source] BoxError),
    /// The sink will not take this message. It is counted, and the message is parked at the limit, if the sink takes others of
    /// its topic or refuses no others. A sink that refuses several and takes none is away.
    #[error("the sink refused the message")]
    Refused(#[source] BoxError),
}

impl SinkError {
    /// No fault of the message.
    pub fn unavailable(why: impl Into<BoxError>) -> Self {
        Self::Unavailable(why.into())
    }

    /// The sink will not take this message.
    pub fn refused(why: impl Into<BoxError>) -> Self {
        Self::Refused(why.into())
    }

    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// What operators read: the causes in one line of at most [`TEXT_BYTES_MAX`].
    pub(super) fn text(&self) -> String {
        let (Self::Unavailable(why) | Self::Refused(why)) = self;
        let (mut text, mut cause) = (why.to_string(), why.source());
        while let Some(deeper) = cause.filter(|_| text.len() < TEXT_BYTES_MAX) {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        // Postgres keeps no zero in a text.
        let mut text = text.replace('\0', "\u{fffd}");
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text
    }
}

const TEXT_BYTES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_its_causes_and_fits_its_column() {
        let cause = std::io::Error::other("connection\0reset");
        let error = SinkError::unavailable(SinkError::unavailable(cause));
        assert_eq!(error.text(), "the sink is unavailable: connection\u{fffd}reset");
        let long = SinkError::refused("é".repeat(TEXT_BYTES_MAX)).text();
        assert_eq!(long.len(), TEXT_BYTES_MAX);
    }
}
