//! The client against servers that fail in every way, with a clock that nobody waits for.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod environment;
mod server;

mod attempts;
mod connecting;
mod doubt;
mod given_key;
mod held;
mod journal;
mod layers;
mod questions;
mod reconcile;
mod redirects;
mod storm;
mod stripe;
mod window;

/// `full` in the full tier, else a tenth of it, rounded up.
fn tiered(full: usize) -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { full } else { full.div_ceil(10) }
}
