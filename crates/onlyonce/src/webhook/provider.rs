//! The senders that we know, and what tells their events apart.

use http::HeaderName;

use crate::fingerprint::Pointer;
use crate::key::KeySource;
use crate::policy::{KeyNeed, Policy};
use crate::scope::ScopePart;

/// A sender of webhooks, by how it signs its deliveries and names its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// [Standard Webhooks](https://www.standardwebhooks.com) 1.0.0, symmetric signatures: `webhook-id`,
    /// `webhook-timestamp`, `webhook-signature`.
    Standard,
    /// Stripe: `Stripe-Signature`.
    Stripe,
    /// GitHub: `X-Hub-Signature-256`.
    Github,
    /// GitLab with a secret token: `X-Gitlab-Token`. With a signing token GitLab is [`Standard`](Self::Standard).
    Gitlab,
    /// Twilio: `X-Twilio-Signature`. See [`Verifier::twilio`](super::Verifier::twilio).
    Twilio,
    /// Shopify: `X-Shopify-Hmac-Sha256`.
    Shopify,
    /// Linear: `Linear-Signature`.
    Linear,
    /// [CloudEvents](https://cloudevents.io) 1.0 over HTTP, which are not signed: nothing is verified.
    CloudEvents,
}

impl Provider {
    /// Each provider by its name in a configuration.
    pub const ALL: [(&'static str, Self); 8] = [
        ("standard", Self::Standard),
        ("stripe", Self::Stripe),
        ("github", Self::Github),
        ("gitlab", Self::Gitlab),
        ("twilio", Self::Twilio),
        ("shopify", Self::Shopify),
        ("linear", Self::Linear),
        ("cloudevents", Self::CloudEvents),
    ];

    /// Where the key of a delivery is: in what the provider repeats when it delivers an event again.
    ///
    /// 1. Standard Webhooks and Stripe sign the id of the event: the id is the key.
    /// 2. GitHub and Linear do not sign `X-GitHub-Delivery` and `Linear-Delivery`: whoever has recorded a delivery could
    ///    send it again under another id. So the key is a digest of what they do sign, the body; of Linear's body
    ///    without the time of the delivery. Two deliveries with the same body are then one event.
    /// 3. GitLab, Twilio and Shopify do not sign the id either, but the bodies of two of their events may be the same, so
    ///    the id is the key. Whoever has recorded a delivery can run it again under another id.
    /// 4. The key of a CloudEvent is its source and its id together.
    pub fn key_from(self) -> KeySource {
        match self {
            Self::Standard => header("webhook-id"),
            Self::Stripe => KeySource::Json(pointer("/id")),
            Self::Github => KeySource::Body { without: None },
            Self::Gitlab => KeySource::default(),
            Self::Twilio => header("i-twilio-idempotency-token"),
            // Not X-Shopify-Webhook-Id: Shopify names this one for telling duplicates.
            Self::Shopify => header("x-shopify-event-id"),
            Self::Linear => KeySource::Body { without: Some(pointer("/webhookTimestamp")) },
            Self::CloudEvents => KeySource::CloudEvent,
        }
    }

    /// What besides the key tells two events apart: the path, which is the provider's endpoint. The `Host` is not in it,
    /// because it is not signed: a recorded delivery could be sent again to another name of the same service.
    ///
    /// The path is not signed either, but by Twilio. So take the deliveries of one sender at one path: at `/hooks/{tenant}` a
    /// recorded delivery could be sent again to the path of another tenant. Where that must be, leave the path out of the
    /// scope, or let the service compare the tenant with the body.
    ///
    /// One change in a shop is told under several topics of Shopify, with one event id.
    pub fn scope(self) -> Vec<ScopePart> {
        match self {
            Self::Shopify => {
                let topic = HeaderName::from_static("x-shopify-topic");
                vec![ScopePart::Path, ScopePart::Header(topic)]
            }
            _ => vec![ScopePart::Path],
        }
    }

    /// The value of the body that may be another one when an event is delivered again: Stripe counts the deliveries that
    /// are still to come, Linear says when it sent this one.
    pub fn varies(self) -> Option<Pointer> {
        match self {
            Self::Stripe => Some(pointer("/pending_webhooks")),
            Self::Linear => Some(pointer("/webhookTimestamp")),
            _ => None,
        }
    }

    /// Whether it signs when a delivery was sent.
    pub(super) fn signs_time(self) -> bool {
        matches!(self, Self::Standard | Self::Stripe | Self::Linear)
    }

    /// Whether there is anything to verify.
    pub(super) fn signs(self) -> bool {
        self != Self::CloudEvents
    }
}

impl Policy {
    /// Finds keys as this provider sends them: sets [`with_key_from`](Self::with_key_from),
    /// [`with_scope`](Self::with_scope) and the fingerprint's `exclude`, and requires a key.
    #[must_use]
    pub fn for_provider(self, provider: Provider) -> Self {
        let mut fingerprint = self.fingerprint().clone();
        fingerprint.exclude.extend(provider.varies());
        self.with_key(KeyNeed::Required)
            .with_key_from([provider.key_from()])
            .with_scope(provider.scope())
            .with_fingerprint(fingerprint)
    }
}

fn header(name: &'static str) -> KeySource {
    KeySource::Header(HeaderName::from_static(name))
}

fn pointer(text: &str) -> Pointer {
    text.parse().expect("a pointer that is written here is a valid one")
}
