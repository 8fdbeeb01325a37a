//! The canonical form of JSON: the same bytes exactly when the values are the same.
//!
//! A reader of JSON and a reader of canonical bytes, both written for this, must agree. The second shows that
//! no two values share their canonical bytes, because bytes lead back to one value.

mod canonical;
mod text;
mod value;

use onlyonce::fuzzing;
use serde_json::error::Category;

/// The data are a document.
pub fn target(data: &[u8]) {
    let (canonical, value) = (fuzzing::json(data), text::read(data));
    let Some(value) = value else {
        assert!(canonical.is_none(), "a malformed or ambiguous document has a canonical form");
        return;
    };
    let Some(canonical) = canonical else {
        assert!(value.is_extreme(), "a plain document has no canonical form");
        return;
    };
    assert_eq!(
        canonical::read(&canonical).as_ref(),
        Some(&value),
        "canonical bytes mean another value"
    );
    demand_same_as_others(data);
    if value.is_extreme() {
        return;
    }
    // Another spelling of the same value has the same bytes, and so has the spelling of that spelling.
    let respelt = value.respelt();
    assert_eq!(fuzzing::json(respelt.as_bytes()).as_ref(), Some(&canonical), "{respelt}");
    if let Some(other) = value.changed() {
        assert_ne!(fuzzing::json(other.respelt().as_bytes()).as_ref(), Some(&canonical));
    }
}

/// What we read, a reader that others wrote reads too; it refuses only numbers that are too large for it.
fn demand_same_as_others(data: &[u8]) {
    if let Err(error) = serde_json::from_slice::<serde_json::Value>(data) {
        let is_number = error.to_string().starts_with("number out of range");
        assert!(is_number && error.classify() == Category::Syntax, "{error}");
    }
}
