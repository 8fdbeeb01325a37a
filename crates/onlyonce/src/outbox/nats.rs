//! Messages in streams of NATS JetStream.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{GetStreamByNameErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{ConnectError, ConnectOptions, Event, ServerAddr, ServerError};
use rustls::ClientConfig;
use tokio::sync::broadcast;

use super::link::Link;
use super::{Message, Sink, SinkError, tls};

/// Publishes each message on the subject that is named as its topic, and waits until a stream has stored it.
///
/// 1. The header `Nats-Msg-Id` is the message's id: within the stream's `duplicate_window` (two minutes, unless you set it)
///    JetStream stores a message that is sent again only once. After that consumers must recognise it, by the same header.
/// 2. Refused: a subject that no stream takes, or that this user may not publish to, a message that is larger than the server
///    or the stream allows, a sealed stream. Everything else is an outage: no connection, no answer, a stream without a
///    leader or without room, a server that is too busy, an earlier publish of the same message that is still being stored.
/// 3. The key is not sent: what the consumer needs belongs in the payload.
pub struct Nats {
    servers: Vec<ServerAddr>,
    prefix: String,
    credentials: Option<(String, String)>,
    tls: Option<ClientConfig>,
    link: Link<Connected>,
}

/// The address of the NATS server is not one: it must be `nats://host:4222` or `tls://host:4222`, or several of them with
/// commas in between.
#[derive(Debug, thiserror::Error)]
#[error(
    "the address must be nats://host:4222 or tls://host:4222, or several with commas in between"
)]
pub struct NatsAddressError(#[source] std::io::Error);

impl Nats {
    /// The servers at `url`: `nats://host:4222`, or `tls://…`, or several of one cluster, with commas in between. They are
    /// connected to when there is a message.
    ///
    /// # Errors
    /// If one of them is no address.
    pub fn new(url: &str) -> Result<Self, NatsAddressError> {
        let servers = url.split(',').map(|server| address(server.trim()));
        let servers = servers.collect::<Result<Vec<_>, _>>().map_err(NatsAddressError)?;
        let tls = servers.iter().any(ServerAddr::tls_required).then(tls::by_machine).flatten();
        Ok(Self { servers, prefix: String::new(), credentials: None, tls, link: Link::new() })
    }

    /// Puts `prefix` in front of each topic: `shop.` makes `shop.charges` of `charges`. None by default.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Logs in with a name and a password. Use `tls://` then: NATS sends them as they are.
    #[must_use]
    pub fn with_user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((name.into(), password.into()));
        self
    }

    async fn connect(&self) -> Result<Connected, ConnectError> {
        let (denied, _) = broadcast::channel(DENIALS_MAX);
        let told = denied.clone();
        let mut options = ConnectOptions::new()
            .name("onlyonce-relay")
            .connection_timeout(CONNECT_WAIT_MAX)
            // The link makes a new connection. One that is made behind our back would send what we have given up.
            .max_reconnects(1)
            .event_callback(move |event| {
                if let Event::ServerError(ServerError::Other(why)) = event {
                    // Nobody waits for it if nothing is being sent.
                    drop(told.send(why));
                }
                std::future::ready(())
            });
        if let Some((name, password)) = &self.credentials {
            options = options.user_and_password(name.clone(), password.clone());
        }
        if let Some(tls) = &self.tls {
            options = options.tls_client_config(tls.clone());
        }
        let client = options.connect(&self.servers[..]).await?;
        let mut jetstream = jetstream::new(client);
        jetstream.set_timeout(ANSWER_WAIT_MAX);
        Ok(Connected { jetstream, denied })
    }
}

impl Sink for Nats {
    async fn send(&self, message: &Message) -> Result<(), SinkError> {
        let subject = format!("{}{}", self.prefix, message.topic);
        if !is_subject(&subject) {
            return Err(SinkError::refused(format!("{subject:?} is no subject of NATS")));
        }
        let lent = self.link.lend(self.connect()).await.map_err(SinkError::unavailable)?;
        let sent = lent.publish(subject, message).await;
        if !matches!(sent, Err(SinkError::Unavailable(_))) {
            lent.give_back();
        }
        sent
    }
}

/// The client would take an empty address for the one of this machine.
fn address(text: &str) -> std::io::Result<ServerAddr> {
    if text.is_empty() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    text.parse()
}

struct Connected {
    jetstream: Context,
    /// What the server will not let us do. It tells that apart from the message that it is about.
    denied: broadcast::Sender<String>,
}

impl Connected {
    async fn publish(&self, subject: String, message: &Message) -> Result<(), SinkError> {
        if self.jetstream.client().connection_state() != State::Connected {
            // The client would keep the message until it is connected again: a promise that ends with this process.
            return Err(SinkError::unavailable("the connection is lost"));
        }
        let mut denied = self.denied.subscribe();
        let publish = PublishMessage::build();
        let publish = publish.payload(message.payload.clone()).message_id(&message.id);
        let stored = async { self.jetstream.send_publish(subject.clone(), publish).await?.await };
        let sent = tokio::select! {
            stored = stored => stored,
            why = denial(&mut denied, &subject) => return Err(SinkError::refused(why)),
        };
        match sent {
            // Servers before 2.11 may answer so while an earlier publish of this id is being replicated, which can still fail.
            Ok(ack) if ack.sequence == 0 => Err(SinkError::unavailable(NOT_STORED)),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == PublishErrorKind::StreamNotFound => {
                Err(self.without_stream(subject).await)
            }
            Err(error) => Err(judge(error)),
        }
    }

    /// Nobody listens on the subject: there is no stream for it, or its leader is being elected.
    async fn without_stream(&self, subject: String) -> SinkError {
        match self.jetstream.stream_by_subject(&subject).await {
            Ok(stream) => SinkError::unavailable(format!("the stream {stream} has no leader now")),
            Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => {
                SinkError::refused(format!("no stream takes the subject {subject}"))
            }
            Err(error) => SinkError::unavailable(error),
        }
    }
}

/// Waits until the server denies a publish on `subject`.
async fn denial(denied: &mut broadcast::Receiver<String>, subject: &str) -> String {
    let quoted = format!("{subject:?}");
    loop {
        match denied.recv().await {
            Ok(why) if why.contains("Publish") && why.contains(&quoted) => return why,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            // The connection is gone; that no answer comes is noticed elsewhere.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// What an error means for the message.
fn judge(error: PublishError) -> SinkError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => SinkError::refused(error),
        _ => match answer(&error) {
            Some(answer) if is_refusal(answer) => SinkError::refused(error),
            _ => SinkError::unavailable(error),
        },
    }
}

/// What JetStream answered.
fn answer(error: &PublishError) -> Option<&jetstream::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// JetStream has the codes of HTTP: 4xx is our fault, but for those that pass by themselves: a timeout (408), an earlier
/// publish of the same id that is not stored yet (409), too many messages at once (429), an account without room (400).
fn is_refusal(answer: &jetstream::Error) -> bool {
    match answer.code() {
        408 | 409 | 429 => false,
        400..=499 => answer.error_code() != ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
        _ => false,
    }
}

/// A subject that can be published to: tokens with dots in between, no wildcards.
fn is_subject(text: &str) -> bool {
    let is_token = |token: &str| {
        !matches!(token, "" | "*" | ">")
            && !token.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    text.split('.').all(is_token)
}

impl std::fmt::Debug for Nats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nats").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

const NOT_STORED: &str = "the stream has not stored the message yet";
/// Denials that are kept for sends that have not looked yet.
const DENIALS_MAX: usize = 64;
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(2);
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_no_subject_is_told() {
        for subject in ["charges", "shop.charges", "a.b-c_d.1", "zahlung.ü"] {
            assert!(is_subject(subject), "{subject}");
        }
        for subject in ["", ".", "a.", ".a", "a..b", "a b", "a\r\nPUB b", "a.*", "a.>", "*"] {
            assert!(!is_subject(subject), "{subject}");
        }
    }

    #[test]
    fn an_address_is_checked_before_it_is_used() {
        assert!(Nats::new("nats://one:4222, tls://two:4222").is_ok());
        for url in ["", "http://one:4222", "nats://one:4222,"] {
            assert!(Nats::new(url).is_err(), "{url}");
        }
    }

    // R137: what only a person can mend is refused, what passes is an outage.
    #[test]
    fn an_answer_of_jetstream_is_a_refusal_or_an_outage() {
        let judged = |code: usize, error_code: u64| {
            let text =
                format!(r#"{{"code": {code}, "err_code": {error_code}, "description": "why"}}"#);
            let answer: jetstream::Error = serde_json::from_str(&text).unwrap();
            judge(PublishError::with_source(PublishErrorKind::Other, answer))
        };
        for (code, error_code) in [(400, 10_054), (400, 10_109), (404, 10_059)] {
            assert!(judged(code, error_code).is_refusal(), "{error_code}");
        }
        let passing = [(503, 10_077), (503, 10_008), (500, 10_047), (400, 10_002), (408, 0)];
        for (code, error_code) in passing.into_iter().chain([(409, 10_158), (429, 10_167)]) {
            assert!(!judged(code, error_code).is_refusal(), "{code}, {error_code}");
        }
        for kind in [PublishErrorKind::TimedOut, PublishErrorKind::BrokenPipe] {
            assert!(!judge(PublishError::new(kind)).is_refusal(), "{kind}");
        }
        assert!(judge(PublishError::new(PublishErrorKind::MaxPayloadExceeded)).is_refusal());
    }
}
