//! Queries, filters and files of the admin API: what is refused is refused, and what is read means what was written.

use onlyonce::OperationFilter;
use onlyonce::record::StateKind;
use onlyonce_cli::fuzzing::{AdminListing, admin_listing, admin_object, admin_rows};
use serde_json::{Map, Value, json};

/// The data are a query and, after a line feed, an object or a CSV.
pub fn target(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (query, body) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    if let Ok(query) = std::str::from_utf8(query) {
        if let Some(listing) = admin_listing(query) {
            demand_same(&listing);
        }
        admin_rows(query, body);
    }
    admin_rows("dry_run=true&reason=why&who=me", body);
    if let Ok(object) = serde_json::from_slice::<Value>(body) {
        admin_object(&object);
    }
}

/// The same filter written as a query and as an object.
fn demand_same(listing: &AdminListing) {
    let members = members(&listing.filter);
    let mut pairs: Vec<(&str, String)> = members.clone();
    pairs.extend(listing.after.clone().map(|after| ("after", after)));
    pairs.extend(listing.limit.map(|limit| ("limit", limit.to_string())));
    let query: Vec<_> =
        pairs.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    assert_eq!(admin_listing(&query.join("&")).as_ref(), Some(listing), "{query:?}");
    let object: Map<_, _> =
        members.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    assert_eq!(admin_object(&Value::Object(object)).as_ref(), Some(&listing.filter));
}

fn members(filter: &OperationFilter) -> Vec<(&'static str, String)> {
    let states = StateKind::ALL.into_iter().filter(|kind| filter.states.contains(*kind));
    let states: Vec<_> = states.map(StateKind::name).collect();
    let texts = [
        ("state", Some(states.join(","))),
        ("route", filter.route.as_deref().map(str::to_owned)),
        ("key", filter.key.clone()),
        ("key_prefix", filter.key_prefix.clone()),
        ("principal", filter.principal.clone()),
        ("older", filter.older.map(|older| format!("{}ms", older.as_millis()))),
    ];
    texts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
