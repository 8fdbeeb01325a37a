//! What the fuzzers run: one module for each place where foreign bytes are read, with a function `target` that panics
//! where the bytes have found a fault.
//!
//! `fuzz/` makes binaries for cargo-fuzz of them, and `scripts/fuzz` runs these. What they have found that is worth
//! keeping is in `fuzz/corpus`; the tests of this crate run all of it, with the stable toolchain.

pub mod admin_query;
pub mod canonical_json;
pub mod config;
pub mod http_edge;
pub mod key_header;
pub mod multipart;
pub mod record;
pub mod redis_reply;
pub mod webhook;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target by the name of its folder in the corpus.
pub const TARGETS: [(&str, Target); 9] = [
    ("admin_query", admin_query::target),
    ("canonical_json", canonical_json::target),
    ("config", config::target),
    ("http_edge", http_edge::target),
    ("key_header", key_header::target),
    ("multipart", multipart::target),
    ("record", record::target),
    ("redis_reply", redis_reply::target),
    ("webhook", webhook::target),
];
