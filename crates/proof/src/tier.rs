//! How much is tried: the full counts, or about a tenth of them.

/// `full` in the full tier, else a tenth of it, rounded up.
pub fn tiered(full: usize) -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { full } else { full.div_ceil(10) }
}
