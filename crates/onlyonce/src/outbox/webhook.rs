//! Messages as signed webhooks.

use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use sha2::Sha256;

use super::{Message, Sink, SinkError};
use crate::client::Wire;

/// Posts each message to a URL, signed as [Standard Webhooks](https://www.standardwebhooks.com) 1.0.0 says.
///
/// 1. `webhook-id` is the message's id: the same at every delivery. `webhook-timestamp` is the time of this attempt, by the
///    database's clock. `webhook-signature` is `v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.payload`.
/// 2. 2xx: it was taken. 4xx: it was refused, but for 408, 425 and 429. Every other answer, and none, is an outage: a
///    redirect is not followed. The status counts as soon as it is there; the body of the answer is not used.
/// 3. The topic and the key are not sent: what the receiver needs belongs in the payload.
pub struct Webhook {
    url: Uri,
    secrets: Vec<Secret>,
    content_type: HeaderValue,
    wire: Wire,
}

type Secret = Hmac<Sha256>;

/// The webhook is not usable. Fix what the variant names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// It must be `http://…` or `https://…`.
    #[error("the URL must be http://… or https://…")]
    BadUrl,
    /// It must be `whsec_` and the base64 of 24 to 64 random bytes.
    #[error("the secret must be whsec_ and the base64 of 24 to 64 bytes")]
    BadSecret,
}

impl Webhook {
    /// Posts to `url`, and signs with `secret`: `whsec_…`.
    ///
    /// # Errors
    /// If one of them is not what it should be.
    pub fn new(url: &str, secret: &str) -> Result<Self, WebhookError> {
        let url: Uri = url.parse().map_err(|_| WebhookError::BadUrl)?;
        if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
            return Err(WebhookError::BadUrl);
        }
        let content_type = HeaderValue::from_static("application/json");
        Ok(Self { url, secrets: vec![read(secret)?], content_type, wire: Wire::new() })
    }

    /// Signs with this secret too: receivers take either while the secret is replaced. At most four are used.
    ///
    /// # Errors
    /// If it is not a secret.
    pub fn with_secret(mut self, secret: &str) -> Result<Self, WebhookError> {
        self.secrets.push(read(secret)?);
        self.secrets.truncate(SECRETS_MAX);
        Ok(self)
    }

    /// The type of the payloads: `application/json` by default.
    #[must_use]
    pub fn with_content_type(mut self, content_type: HeaderValue) -> Self {
        self.content_type = content_type;
        self
    }

    fn request(&self, message: &Message) -> Result<Request<Bytes>, http::Error> {
        let timestamp = message.leased_at.as_ms().div_euclid(1_000).to_string();
        let signatures = self.secrets.iter().map(|secret| signature(secret, message, &timestamp));
        let signatures = signatures.collect::<Vec<_>>().join(" ");
        Request::builder()
            .method(Method::POST)
            .uri(self.url.clone())
            .header(header::CONTENT_TYPE, self.content_type.clone())
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signatures)
            .body(message.payload.clone())
    }
}

impl Sink for Webhook {
    async fn send(&self, message: &Message) -> Result<(), SinkError> {
        let request = self.request(message).map_err(SinkError::refused)?;
        let response = self.wire.respond(request).await.map_err(SinkError::unavailable)?;
        let status = response.status();
        // Beside the answer: a body that is late, endless or broken off changes nothing about the status.
        tokio::spawn(drain(response.into_body()));
        judge(status)
    }
}

/// Reads a body that nobody needs, because the connection can be used again only after its end. A body that is too long or
/// too slow costs its connection.
async fn drain(body: Incoming) {
    let read = Limited::new(body, ANSWER_BYTES_MAX).collect();
    drop(tokio::time::timeout(DRAIN_WAIT_MAX, read).await);
}

/// What the status of an answer means for the message.
fn judge(status: StatusCode) -> Result<(), SinkError> {
    let answered = || format!("the receiver answered {status}");
    match status.as_u16() {
        200..=299 => Ok(()),
        408 | 425 | 429 => Err(SinkError::unavailable(answered())),
        400..=499 => Err(SinkError::refused(answered())),
        _ => Err(SinkError::unavailable(answered())),
    }
}

fn read(secret: &str) -> Result<Secret, WebhookError> {
    let bytes = secret.strip_prefix("whsec_").and_then(|text| SECRET.decode(text).ok());
    let bytes = bytes.filter(|bytes| SECRET_BYTES.contains(&bytes.len()));
    let bytes = bytes.ok_or(WebhookError::BadSecret)?;
    Ok(Secret::new_from_slice(&bytes).expect("a key of any length"))
}

fn signature(secret: &Secret, message: &Message, timestamp: &str) -> String {
    let mut mac = secret.clone();
    mac.update(format!("{}.{timestamp}.", message.id).as_bytes());
    mac.update(&message.payload);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The path may hold a credential.
        f.debug_struct("Webhook").field("host", &self.url.host()).finish_non_exhaustive()
    }
}

/// Secrets come with and without padding.
const SECRET: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Secrets that a message is signed with.
const SECRETS_MAX: usize = 4;
/// How long a secret is, by Standard Webhooks.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// What is read of an answer's body, and for how long.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::StoreTime;

    // R141: the example of the Standard Webhooks libraries.
    #[test]
    fn a_signature_is_that_of_the_published_example() {
        let message = Message {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(),
            topic: "test".to_owned(),
            key: None,
            payload: Bytes::from_static(br#"{"test": 2432232314}"#),
            created_at: StoreTime::from_ms(0),
            leased_at: StoreTime::from_ms(1_614_265_330_999),
            refusals: 0,
        };
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let webhook = Webhook::new("https://example.com", secret).unwrap();
        let request = webhook.request(&message).unwrap();
        assert_eq!(request.headers()["webhook-id"], message.id);
        assert_eq!(request.headers()["webhook-timestamp"], "1614265330");
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(request.headers()["webhook-signature"], expected);
        let both = webhook.with_secret(secret).unwrap().request(&message).unwrap();
        assert_eq!(both.headers()["webhook-signature"], format!("{expected} {expected}"));
    }

    #[test]
    fn an_answer_is_taken_refused_or_an_outage() {
        let judged = |status: u16| judge(StatusCode::from_u16(status).unwrap());
        for status in [200, 201, 204, 299] {
            assert!(judged(status).is_ok(), "{status}");
        }
        for status in [400, 401, 404, 409, 410, 413, 422, 499] {
            assert!(matches!(judged(status), Err(SinkError::Refused(_))), "{status}");
        }
        for status in [301, 302, 304, 408, 425, 429, 500, 502, 503, 504] {
            assert!(matches!(judged(status), Err(SinkError::Unavailable(_))), "{status}");
        }
    }

    #[test]
    fn what_is_not_a_secret_or_a_url_is_refused() {
        let secret = format!("whsec_{}", STANDARD.encode([7; 24]));
        assert!(Webhook::new("https://example.com/hook", &secret).is_ok());
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        for secret in ["", "whsec_", "secret", &secret["whsec_".len()..], &short] {
            let made = Webhook::new("https://example.com", secret);
            assert!(matches!(made, Err(WebhookError::BadSecret)), "{secret}");
        }
        for url in ["", "example.com", "/hook", "ftp://example.com"] {
            assert!(matches!(Webhook::new(url, &secret), Err(WebhookError::BadUrl)), "{url}");
        }
    }
}
