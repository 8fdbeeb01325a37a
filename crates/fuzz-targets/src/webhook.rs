//! Signatures of webhooks: whatever a stranger sends is refused, and what the sender signed is taken as it was signed
//! and not otherwise.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use onlyonce::clock::StoreTime;
use onlyonce::webhook::{Provider, Verifier};
use sha2::Sha256;

/// The data are the header lines of a delivery, an empty line, and its body.
pub fn target(data: &[u8]) {
    let (lines, body) = halves(data);
    let head = head(lines);
    for provider in [
        Provider::Standard,
        Provider::Stripe,
        Provider::Github,
        Provider::Gitlab,
        Provider::Shopify,
        Provider::Linear,
    ] {
        let verifier = Verifier::new(provider, [secret_of(provider)]).expect("a secret");
        let is_taken = verifier.verify(&head, body, NOW).is_ok();
        assert!(!is_taken, "{provider:?} takes what it has not signed");
        demand_signed(&verifier, provider, lines, body);
    }
    let twilio = Verifier::twilio("https://hooks.example.com", [SECRET]).expect("a URL");
    assert!(twilio.verify(&head, body, NOW).is_err(), "Twilio takes what it has not signed");
}

/// A delivery that was signed is taken; with another body, later, or with its header twice, it is not.
fn demand_signed(verifier: &Verifier, provider: Provider, id: &[u8], body: &[u8]) {
    let Some(signed) = signed(provider, id, body) else { return };
    assert_eq!(verifier.verify(&signed, body, NOW), Ok(()), "{provider:?}");
    let longer = [body, b" "].concat();
    assert!(verifier.verify(&signed, &longer, NOW).is_err(), "{provider:?}, another body");
    if matches!(provider, Provider::Standard | Provider::Stripe) {
        let later = StoreTime::from_ms(NOW.as_ms() + 301_000);
        assert!(verifier.verify(&signed, body, later).is_err(), "{provider:?}, too late");
    }
    let mut doubled = signed.clone();
    for (name, value) in &signed.headers {
        doubled.headers.append(name, value.clone());
    }
    assert!(verifier.verify(&doubled, body, NOW).is_err(), "{provider:?}, two of each header");
}

/// The head of a delivery that this provider has signed.
fn signed(provider: Provider, id: &[u8], body: &[u8]) -> Option<Parts> {
    let seconds = (NOW.as_ms() / 1_000).to_string();
    let mac = |parts: &[&[u8]]| {
        let key = if provider == Provider::Standard { KEY } else { SECRET.as_bytes() };
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes()
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let headers = match provider {
        Provider::Standard => {
            let id: String = id.iter().map(|byte| format!("{byte:x}")).take(64).collect();
            let signature = mac(&[id.as_bytes(), b".", seconds.as_bytes(), b".", body]);
            let signature = format!("v1,AAAA v1,{}", STANDARD.encode(signature));
            vec![
                ("webhook-id", id),
                ("webhook-timestamp", seconds),
                ("webhook-signature", signature),
            ]
        }
        Provider::Stripe => {
            let signature = hex(&mac(&[seconds.as_bytes(), b".", body]));
            vec![("stripe-signature", format!("t={seconds},v0=00,v1={signature}"))]
        }
        Provider::Github => vec![("x-hub-signature-256", format!("sha256={}", hex(&mac(&[body]))))],
        Provider::Shopify => vec![("x-shopify-hmac-sha256", STANDARD.encode(mac(&[body])))],
        _ => return None,
    };
    let mut parts = Request::post("/hooks").body(()).ok()?.into_parts().0;
    for (name, value) in headers {
        parts.headers.insert(name, HeaderValue::try_from(value).ok()?);
    }
    Some(parts)
}

fn secret_of(provider: Provider) -> String {
    match provider {
        Provider::Standard => format!("whsec_{}", STANDARD.encode(KEY)),
        _ => SECRET.into(),
    }
}

fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.windows(2).position(|two| two == b"\n\n");
    end.map_or((data, &[]), |end| (&data[..end], &data[end + 2..]))
}

/// Lines that are no headers are left out.
fn head(lines: &[u8]) -> Parts {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let mut parts =
        Request::post("/hooks?bodySHA256=00").body(()).expect("a request").into_parts().0;
    parts.headers = headers;
    parts
}

/// So long that no mutation finds it.
const SECRET: &str = "5f2b1c8e9d704a63b1e2f3a4c5d6e7f8091a2b3c4d5e6f70";
const KEY: &[u8] = b"thirty-two bytes for Standard We";
const NOW: StoreTime = StoreTime::from_ms(1_780_000_000_000);
