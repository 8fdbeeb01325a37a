//! Deliveries as their providers sign them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use onlyonce::clock::{Clock, SystemClock};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::client::Ask;

/// What the gateway finds in `HOOK`.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// What the gateway finds in `HOOK_OLD`.
pub(crate) const OLD_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// What nobody gave to the gateway.
pub(super) const FORGED: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The time in seconds, `later` than now.
pub(super) fn seconds(later: i64) -> i64 {
    SystemClock.wall().as_ms() / 1_000 + later
}

pub(super) fn delivery(body: &str) -> Ask {
    Ask::post(body).to("/hooks")
}

/// Standard Webhooks.
pub(super) fn standard(id: &str, body: &str, at: i64, secret: &str) -> Ask {
    let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let signature = BASE64.encode(sha256(&key, &format!("{id}.{at}.{body}")));
    delivery(body)
        .header("webhook-id", id)
        .header("webhook-timestamp", at.to_string())
        .header("webhook-signature", format!("v1,{signature}"))
}

pub(super) fn stripe(body: &str, at: i64, secret: &str) -> Ask {
    let signature = hex(&sha256(secret.as_bytes(), &format!("{at}.{body}")));
    delivery(body).header("Stripe-Signature", format!("t={at},v1={signature},v0=00"))
}

pub(super) fn github(body: &str, secret: &str) -> Ask {
    let signature = hex(&sha256(secret.as_bytes(), body));
    delivery(body).header("X-Hub-Signature-256", format!("sha256={signature}"))
}

pub(super) fn gitlab(body: &str, id: &str, secret: &str) -> Ask {
    delivery(body).header("X-Gitlab-Token", secret).header("Idempotency-Key", id)
}

/// Of a form whose fields are sorted, to `https://hooks.example.com/hooks`.
pub(super) fn twilio(fields: &[(&str, &str)], token: &str, secret: &str) -> Ask {
    let signed = fields.iter().map(|(name, value)| format!("{name}{value}")).collect::<String>();
    let signature = BASE64.encode(sha1(secret, &format!("{TWILIO_URL}{signed}")));
    let body = fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    delivery(&body.join("&"))
        .media("application/x-www-form-urlencoded")
        .header("X-Twilio-Signature", signature)
        .header("I-Twilio-Idempotency-Token", token)
}

/// Of another body, whose digest is in the query.
pub(super) fn twilio_json(body: &str, token: &str, secret: &str) -> Ask {
    let digest = hex(&Sha256::digest(body));
    let signature = BASE64.encode(sha1(secret, &format!("{TWILIO_URL}?bodySHA256={digest}")));
    delivery(body)
        .to(&format!("/hooks?bodySHA256={digest}"))
        .header("X-Twilio-Signature", signature)
        .header("I-Twilio-Idempotency-Token", token)
}

const TWILIO_URL: &str = "https://hooks.example.com/hooks";

pub(super) fn shopify(body: &str, topic: &str, id: &str, secret: &str) -> Ask {
    let signature = BASE64.encode(sha256(secret.as_bytes(), body));
    delivery(body)
        .header("X-Shopify-Hmac-Sha256", signature)
        .header("X-Shopify-Topic", topic)
        .header("X-Shopify-Event-Id", id)
}

pub(super) fn linear(event: &str, at: i64, secret: &str) -> Ask {
    let body =
        format!(r#"{{"action":"update","data":{{"id":"{event}"}},"webhookTimestamp":{at}000}}"#);
    let signature = hex(&sha256(secret.as_bytes(), &body));
    delivery(&body).header("Linear-Signature", signature)
}

fn sha1(secret: &str, text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).unwrap();
    Mac::update(&mut mac, text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn sha256(secret: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    Mac::update(&mut mac, text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
