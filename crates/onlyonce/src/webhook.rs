//! Webhooks in: whether a delivery is genuine, and which event it is about.
//!
//! 1. A [`Verifier`] checks a delivery before its key is claimed: a forged delivery takes no key, and the genuine one
//!    that comes later has its effect.
//! 2. The signature is computed over the bytes of the body as they came, and compared in constant time. Any of the
//!    secrets may have made it, so that a secret can be replaced without a gap.
//! 3. Where the sender signs a timestamp, it must be within five minutes of now, before or after
//!    ([`Verifier::with_tolerance`]).
//! 4. The key is what the sender repeats when it delivers an event again: see [`Provider::key_from`].
//!    [`Policy::for_provider`](crate::Policy::for_provider) sets everything that a policy needs for that.
//!
//! Put the verifier into the layer with [`OnceLayer::with_verifier`](crate::http::OnceLayer::with_verifier), or call
//! [`Verifier::verify`] before [`Once::run`](crate::Once::run).
//!
//! ```
//! # #[cfg(all(feature = "memory", feature = "tower"))] {
//! use axum::{Router, routing::post};
//! use http::request::Parts;
//! use onlyonce::webhook::{Provider, Verifier};
//! use onlyonce::{Once, Policy, scope::Principal, store::memory::MemoryStore};
//!
//! let verifier = Verifier::new(Provider::Standard, ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])?;
//! let policy = Policy::webhook().for_provider(Provider::Standard);
//! let sender = |_: &Parts| Principal::anonymous();
//! let once = Once::new(MemoryStore::new());
//! let layer = once.layer(sender, policy);
//! let layer = layer.with_verifier(move |head, body, now| verifier.verify(head, body, now));
//! let app: Router = Router::new().route("/hooks", post(|| async { "taken" })).layer(layer);
//! # }
//! # Ok::<(), onlyonce::webhook::VerifierError>(())
//! ```

mod provider;
mod schemes;
mod secret;

use std::time::Duration;

use http::Uri;
use http::request::Parts;
use http::uri::PathAndQuery;

use self::secret::Secret;
use crate::clock::{StoreTime, as_ms};

pub use provider::Provider;

/// Tells whether a delivery is genuine.
#[derive(Clone, Debug)]
pub struct Verifier {
    provider: Provider,
    secrets: Vec<Secret>,
    tolerance: Duration,
    /// The scheme and the host that Twilio calls; empty for all others.
    origin: Box<str>,
}

impl Verifier {
    /// Verifies the deliveries of `provider` by any of these secrets, each as the provider shows it.
    ///
    /// # Errors
    /// Where the provider signs and there is no secret, or one that cannot be right; and where it does not sign and there
    /// is one.
    pub fn new<S: AsRef<str>>(
        provider: Provider,
        secrets: impl IntoIterator<Item = S>,
    ) -> Result<Self, VerifierError> {
        match provider {
            Provider::Twilio => Err(VerifierError::NoUrl),
            _ => Self::at(provider, Box::default(), secrets),
        }
    }

    /// Verifies the deliveries of Twilio, which signs the URL that it calls: `url` is its beginning, such as
    /// `https://hooks.example.com`, to which the path and the query of the request are added.
    ///
    /// # Errors
    /// Where there is no secret, or `url` is not a scheme and a host.
    pub fn twilio<S: AsRef<str>>(
        url: &str,
        secrets: impl IntoIterator<Item = S>,
    ) -> Result<Self, VerifierError> {
        let uri: Uri = url.parse().map_err(|_| VerifierError::BadUrl)?;
        match (uri.scheme_str(), uri.authority(), uri.path_and_query().map(PathAndQuery::as_str)) {
            (Some(scheme @ ("http" | "https")), Some(host), None | Some("" | "/")) => {
                Self::at(Provider::Twilio, format!("{scheme}://{host}").into(), secrets)
            }
            _ => Err(VerifierError::BadUrl),
        }
    }

    fn at<S: AsRef<str>>(
        provider: Provider,
        origin: Box<str>,
        secrets: impl IntoIterator<Item = S>,
    ) -> Result<Self, VerifierError> {
        let secrets = secrets.into_iter().map(|secret| Secret::read(provider, secret.as_ref()));
        let secrets = secrets.collect::<Result<Vec<_>, _>>()?;
        match secrets.is_empty() {
            true if provider.signs() => Err(VerifierError::NoSecret),
            false if !provider.signs() => Err(VerifierError::Unsigned),
            _ => Ok(Self { provider, secrets, tolerance: TOLERANCE, origin }),
        }
    }

    /// How far a signed timestamp may be from now, before or after. Default: five minutes. Longer, and a delivery that
    /// somebody has recorded can be sent again for longer; its key still stops it while the key is kept, so keep it at least
    /// twice as long ([`valid_for`](Self::valid_for)).
    #[must_use]
    pub fn with_tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance, ..self }
    }

    /// For how long one delivery may be taken: from a clock that is ahead of this one by the tolerance, until as long after.
    /// The [ttl](crate::Policy::with_ttl) must not be shorter, or a recorded delivery can be run again once its key is
    /// forgotten. `None` where the provider signs no timestamp: a recorded delivery is then taken at any time.
    pub fn valid_for(&self) -> Option<Duration> {
        self.provider.signs_time().then(|| self.tolerance.saturating_mul(2))
    }

    /// How far a signed timestamp may be from now.
    pub fn tolerance(&self) -> Duration {
        self.tolerance
    }

    /// How many secrets there are, any of which may have signed a delivery.
    pub fn secrets(&self) -> usize {
        self.secrets.len()
    }

    /// The beginning of the URL that Twilio calls; empty for all others.
    pub fn url(&self) -> &str {
        &self.origin
    }

    /// Whose deliveries are verified.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Whether this delivery is genuine. `body` must be the bytes as they came, and `now` the time of this node.
    ///
    /// # Errors
    /// If it is not known to be genuine: answer 401, and do nothing.
    pub fn verify(&self, head: &Parts, body: &[u8], now: StoreTime) -> Result<(), Unverified> {
        match self.provider {
            Provider::Standard => self.standard(&head.headers, body, now),
            Provider::Stripe => self.stripe(&head.headers, body, now),
            Provider::Github => self.github(&head.headers, body),
            Provider::Gitlab => self.gitlab(&head.headers),
            Provider::Twilio => self.twilio_call(head, body),
            Provider::Shopify => self.shopify(&head.headers, body),
            Provider::Linear => self.linear(&head.headers, body, now),
            Provider::CloudEvents => Ok(()),
        }
    }

    /// Whether what was signed at `signed_at` is still, or already, to be taken.
    fn timely(&self, signed_at: StoreTime, now: StoreTime) -> Result<(), Unverified> {
        match now.since_ms(signed_at).unsigned_abs() <= as_ms(self.tolerance).unsigned_abs() {
            true => Ok(()),
            false => Err(Unverified::Untimely),
        }
    }
}

/// Why there is no verifier. Correct the secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifierError {
    /// Give the secret that the provider shows for this endpoint.
    #[error("this provider signs its deliveries, and there is no secret to verify them with")]
    NoSecret,
    /// Copy the secret whole.
    #[error("a secret of Standard Webhooks is whsec_ and the base64 of 24 to 64 bytes")]
    BadSecret,
    /// Leave a secret out that is empty.
    #[error("a secret is empty")]
    EmptySecret,
    /// Remove the secrets, and keep strangers from the endpoint by other means.
    #[error(
        "this provider does not sign its deliveries, so there is nothing to verify with a secret"
    )]
    Unsigned,
    /// Use [`Verifier::twilio`].
    #[error(
        "Twilio signs the URL that it calls; give its beginning as `url`, such as \"https://hooks.example.com\""
    )]
    NoUrl,
    /// Give the scheme and the host alone.
    #[error(
        "the URL is http:// or https:// and a host, without a path, such as \"https://hooks.example.com\""
    )]
    BadUrl,
}

/// Why a delivery is not known to be genuine. Its texts may be shown to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unverified {
    /// A header that the signature needs is missing, doubled or malformed.
    #[error("the header {0} is missing, doubled or malformed")]
    Header(&'static str),
    /// No secret makes this signature: the delivery was forged or changed, or the secret is another one.
    #[error("the signature is not that of this delivery")]
    Signature,
    /// The body is not covered by the signature, or has no timestamp although the provider always sends one.
    #[error("the body has no {0}")]
    Body(&'static str),
    /// The delivery was recorded and sent again, or a clock is wrong.
    #[error("its timestamp is too far from the time of this server")]
    Untimely,
}

const TOLERANCE: Duration = Duration::from_secs(5 * 60);

#[cfg(test)]
mod tests;
