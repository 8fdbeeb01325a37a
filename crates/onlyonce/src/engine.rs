//! The decisions: pure values in, pure values out. No I/O, no clock, no await.
//!
//! 1. [`table`] says which event may follow which state: the whole protocol in one match.
//! 2. [`write`](mod@write) turns an event into the guard and the record that a store is asked to write.
//! 3. [`decide()`] says what to do about a request, given what the store holds for its key.
//! 4. [`lapse`] says which running records were left by a dead owner.

pub mod decide;
pub mod lapse;
pub mod table;
pub mod write;

pub use decide::{Asked, Decision, decide};
pub use write::Write;
