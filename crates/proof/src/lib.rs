//! The fault harness: processes that are killed, disks that fail, and the oracle that counts executions.

pub mod checker;
pub mod client;
pub mod cutter;
#[cfg(target_os = "linux")]
pub mod disk;
pub mod history;
pub mod ledger;
pub mod oracle;
pub mod samples;
pub mod tier;
