//! How each provider signs a delivery.

use std::borrow::Cow;

use http::HeaderMap;
use http::request::Parts;
use http::uri::PathAndQuery;
use sha2::{Digest, Sha256};

use super::secret::base64;
use super::{Provider, Unverified, Verifier};
use crate::body::form;
use crate::body::json::{self, Found};
use crate::clock::StoreTime;
use crate::hex;

impl Verifier {
    /// `id.timestamp.body`, in `v1,` and base64; several signatures have spaces between them.
    pub(super) fn standard(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: StoreTime,
    ) -> Result<(), Unverified> {
        let (id, timestamp) = (only(headers, ID)?, only(headers, TIMESTAMP)?);
        // A full stop in it could move what is signed from one part to the next.
        if id.contains('.') {
            return Err(Unverified::Header(ID));
        }
        let given = only(headers, SIGNATURE)?.split(' ');
        let given = given.filter_map(|one| base64(one.strip_prefix("v1,")?)?.try_into().ok());
        let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
        self.signed(&signed, given)?;
        self.timely(seconds(timestamp).ok_or(Unverified::Header(TIMESTAMP))?, now)
    }

    /// `timestamp.body`, in `t=timestamp,v1=hex`; there may be several `v1`, and other schemes beside them.
    pub(super) fn stripe(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: StoreTime,
    ) -> Result<(), Unverified> {
        let wrong = Unverified::Header(STRIPE);
        let fields = || only(headers, STRIPE).map(|line| line.split(',').map(str::trim));
        let mut times = fields()?.filter_map(|field| field.strip_prefix("t="));
        let (Some(timestamp), None) = (times.next(), times.next()) else { return Err(wrong) };
        let given = fields()?.filter_map(|field| hex::decode(field.strip_prefix("v1=")?));
        self.signed(&[timestamp.as_bytes(), b".", body], given)?;
        self.timely(seconds(timestamp).ok_or(wrong)?, now)
    }

    /// The body alone, in `sha256=` and hexadecimal.
    pub(super) fn github(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Unverified> {
        let given = only(headers, GITHUB)?.strip_prefix("sha256=").and_then(hex::decode);
        self.signed(&[body], given)
    }

    /// Nothing is signed: the delivery shows the secret itself.
    pub(super) fn gitlab(&self, headers: &HeaderMap) -> Result<(), Unverified> {
        let given = only(headers, GITLAB)?;
        genuine(self.secrets.iter().any(|secret| secret.is(given)))
    }

    /// The body alone, in base64.
    pub(super) fn shopify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Unverified> {
        let given = base64(only(headers, SHOPIFY)?).and_then(|bytes| bytes.try_into().ok());
        self.signed(&[body], given)
    }

    /// The body alone, in hexadecimal. It has the time of the delivery, in milliseconds.
    pub(super) fn linear(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: StoreTime,
    ) -> Result<(), Unverified> {
        self.signed(&[body], hex::decode(only(headers, LINEAR)?))?;
        let sent_at = Provider::Linear.varies().and_then(|place| json::find(body, &place).ok()?);
        let sent_at = match sent_at {
            Some(Found::Text(text)) => text.parse().ok(),
            _ => None,
        };
        let sent_at = sent_at.ok_or(Unverified::Body("webhookTimestamp"))?;
        self.timely(StoreTime::from_ms(sent_at), now)
    }

    /// The URL, and the names and values of a form, sorted and without anything between them. Another body has its
    /// SHA-256 in the query, as `bodySHA256`.
    pub(super) fn twilio_call(&self, head: &Parts, body: &[u8]) -> Result<(), Unverified> {
        let given = base64(only(&head.headers, TWILIO)?).and_then(|bytes| bytes.try_into().ok());
        let given: [u8; 20] = given.ok_or(Unverified::Header(TWILIO))?;
        let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let mut signed = format!("{}{target}", self.origin).into_bytes();
        match body_digest(head.uri.query())? {
            Some(digest) if digest == <[u8; 32]>::from(Sha256::digest(body)) => {}
            Some(_) => return Err(Unverified::Signature),
            None => signed.extend(sorted_fields(body)?),
        }
        genuine(self.secrets.iter().any(|secret| secret.has_signed_sha1(&signed, &given)))
    }

    /// Whether any of the secrets has made any of these signatures.
    fn signed(
        &self,
        parts: &[&[u8]],
        given: impl IntoIterator<Item = [u8; 32]>,
    ) -> Result<(), Unverified> {
        let given: Vec<_> = given.into_iter().collect();
        genuine(self.secrets.iter().any(|secret| secret.has_signed(parts, &given)))
    }
}

fn genuine(is_signed: bool) -> Result<(), Unverified> {
    is_signed.then_some(()).ok_or(Unverified::Signature)
}

/// What the query says of the body.
fn body_digest(query: Option<&str>) -> Result<Option<[u8; 32]>, Unverified> {
    let mut values = form::values(query.unwrap_or_default().as_bytes(), "bodySHA256");
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.ok().and_then(|value| String::from_utf8(value.into_owned()).ok());
    let digest = text.and_then(|text| hex::decode(&text));
    match (digest, values.next()) {
        (Some(digest), None) => Ok(Some(digest)),
        _ => Err(Unverified::Signature),
    }
}

/// Twilio takes values that repeat for one.
fn sorted_fields(body: &[u8]) -> Result<Vec<u8>, Unverified> {
    let mut fields = form::decoded(body).map_err(|_| Unverified::Body("form to be verified"))?;
    fields.sort_unstable();
    fields.dedup();
    let texts = fields.into_iter().flat_map(|(name, value)| [name, value.unwrap_or_default()]);
    Ok(texts.flat_map(Cow::into_owned).collect())
}

/// The one value of a header.
fn only<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Unverified> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next().and_then(|line| line.to_str().ok()), lines.next()) {
        (Some(line), None) => Ok(line),
        _ => Err(Unverified::Header(name)),
    }
}

/// A moment in seconds since 1970.
fn seconds(text: &str) -> Option<StoreTime> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: i64 = text.parse().ok().filter(|_| is_number)?;
    Some(StoreTime::from_ms(seconds.saturating_mul(1_000)))
}

const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";
const STRIPE: &str = "stripe-signature";
const GITHUB: &str = "x-hub-signature-256";
const GITLAB: &str = "x-gitlab-token";
const TWILIO: &str = "x-twilio-signature";
const SHOPIFY: &str = "x-shopify-hmac-sha256";
const LINEAR: &str = "linear-signature";
