//! What is private and reads foreign bytes, for the fuzz targets of this repository. Nothing in it is a promise.

pub use crate::admin::fuzzing::{AdminListing, admin_listing, admin_object, admin_rows};
pub use crate::gateway::fuzzing::{has_doubt, heads};
