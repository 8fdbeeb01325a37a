//! The readers of the admin API, for the fuzz targets.

use onlyonce::OperationFilter;
use onlyonce::store::Cursor;
use serde_json::Value;

use super::{csv_in, filter};

/// What the query of a list says.
#[derive(Debug, PartialEq)]
pub struct AdminListing {
    /// Which operations are meant.
    pub filter: OperationFilter,
    /// Where in the list to begin, as it is told.
    pub after: Option<String>,
    /// How many of them.
    pub limit: Option<usize>,
}

/// `None` where the query is refused.
pub fn admin_listing(query: &str) -> Option<AdminListing> {
    let filter::Listing { filter, after, limit } = filter::of_query(query).ok()?;
    let after = after.map(|after: Cursor| filter::cursor_text(after));
    Some(AdminListing { filter, after, limit })
}

/// `None` where the object is refused.
pub fn admin_object(object: &Value) -> Option<OperationFilter> {
    filter::of_json(object).ok()
}

/// How many changes a CSV asks for; `None` where it is refused.
pub fn admin_rows(query: &str, body: &[u8]) -> Option<usize> {
    csv_in::count(query, body)
}
