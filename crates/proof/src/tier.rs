//! How much is tried: the full counts, or about a tenth of them.

/// `full` in the full tier, else a tenth of it, rounded up.
pub fn tiered(full: usize) -> usize {
    if is_full() { full } else { full.div_ceil(10) }
}

/// Whether this is the full tier.
pub fn is_full() -> bool {
    std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full")
}
