//! Where the key of a request comes from: `--key`, `--derive`, or a header as one writes it for curl.

use http::HeaderName;
use onlyonce::key::{Key, KeyRules};

use super::parsed_header;

/// The header that has the key.
pub(super) const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The key that all ways agree on, if one was given. Two different keys would be two operations, and a key
/// that is ignored would be a second charge.
pub(super) fn agreed(
    key: Option<&str>,
    derive: &[String],
    headers: &[String],
) -> Result<Option<Key>, String> {
    let key = key.map(|key| parsed("--key", key));
    let derived = (!derive.is_empty()).then(|| derived(derive));
    let in_headers = headers.iter().filter_map(|header| in_header(header).transpose());
    let mut agreed = None;
    for given in key.into_iter().chain(derived).chain(in_headers) {
        let given = given?;
        if agreed.as_ref().is_some_and(|agreed| *agreed != given) {
            return Err("the command line gives two different keys; give one, by --key, --derive \
                        or -H 'Idempotency-Key: KEY'"
                .to_owned());
        }
        agreed = Some(given);
    }
    Ok(agreed)
}

/// An empty part is usually a variable that is not set, and would give different operations one key.
fn derived(parts: &[String]) -> Result<Key, String> {
    match parts.iter().any(|part| part.trim().is_empty()) {
        true => Err("--derive: a part of the key is empty; is a variable not set?".to_owned()),
        false => Ok(Key::derive(parts)),
    }
}

/// The key of an option. In quotes it is the same key as without them, as in a header.
pub(super) fn parsed(option: &str, text: &str) -> Result<Key, String> {
    let rules = KeyRules::default();
    let key = match text.starts_with('"') {
        true => Key::from_field_lines([text.as_bytes()], &rules),
        false => Key::from_text(text, &rules).map(Some),
    };
    let key = key.map_err(|error| format!("{option}: {error}"))?;
    key.ok_or_else(|| format!("{option}: the key is missing"))
}

fn in_header(header: &str) -> Result<Option<Key>, String> {
    let (name, value) = parsed_header(header)?;
    if name != HEADER {
        return Ok(None);
    }
    let key = Key::from_field_lines([value.as_bytes()], &KeyRules::default());
    key.map_err(|error| format!("-H 'Idempotency-Key': {error}"))
}
