//! When a key was first used, as far as the request itself tells: by the time inside a UUIDv7, or by
//! `Repeatability-First-Sent`. Where both tell, the earlier counts.

use http::header::{HeaderMap, HeaderName};
use jiff::fmt::rfc2822;

use crate::clock::StoreTime;
use crate::key::Key;

pub(super) fn first_used(key: &Key, headers: &HeaderMap) -> Option<StoreTime> {
    made_at(key.as_str()).into_iter().chain(first_sent(headers)).min()
}

/// The time in a UUIDv7: the milliseconds since 1970 are its first 48 bits.
fn made_at(key: &str) -> Option<StoreTime> {
    let is_hyphen = |place: usize| matches!(place, 8 | 13 | 18 | 23);
    let is_uuid = key.len() == 36
        && key.bytes().enumerate().all(|(place, byte)| match is_hyphen(place) {
            true => byte == b'-',
            false => byte.is_ascii_hexdigit(),
        });
    let is_version_7 = is_uuid
        && key.as_bytes()[14] == b'7'
        && matches!(key.as_bytes()[19], b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
    let (high, low) = is_version_7.then(|| (&key[..8], &key[9..13]))?;
    i64::from_str_radix(&format!("{high}{low}"), 16).ok().map(StoreTime::from_ms)
}

/// A date as HTTP writes it; what is none is ignored.
pub(super) fn first_sent(headers: &HeaderMap) -> Option<StoreTime> {
    let text = headers.get(FIRST_SENT)?.to_str().ok()?;
    let moment = rfc2822::parse(text).ok()?.timestamp();
    Some(StoreTime::from_ms(moment.as_millisecond()))
}

pub(super) const FIRST_SENT: HeaderName = HeaderName::from_static("repeatability-first-sent");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRules;

    fn of(key: &str, first_sent: Option<&'static str>) -> Option<i64> {
        let mut headers = HeaderMap::new();
        if let Some(text) = first_sent {
            headers.insert(FIRST_SENT, text.parse().unwrap());
        }
        let key = Key::from_text(key, &KeyRules::default()).unwrap();
        first_used(&key, &headers).map(StoreTime::as_ms)
    }

    #[test]
    fn a_uuid_of_version_7_tells_when_it_was_made() {
        // The example of RFC 9562, appendix A.6.
        assert_eq!(of("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", None), Some(1_645_557_742_000));
        assert_eq!(of("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", None), Some(1_645_557_742_000));
    }

    #[test]
    fn other_keys_tell_nothing() {
        for key in [
            "017F22E2-79B0-4CC3-98C4-DC0C0C07398F",
            "017F22E2-79B0-7CC3-18C4-DC0C0C07398F",
            "017F22E279B07CC398C4DC0C0C07398F",
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398G",
            "order-4711",
        ] {
            assert_eq!(of(key, None), None, "{key}");
        }
    }

    #[test]
    fn the_earlier_of_key_and_header_counts() {
        let header = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(of("order-4711", header), Some(784_111_777_000));
        assert_eq!(of("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", header), Some(784_111_777_000));
        assert_eq!(of("order-4711", Some("yesterday")), None);
    }
}
