//! The fault harness: processes that are killed, disks that fail, and the oracle that counts executions.

pub mod client;
pub mod ledger;
pub mod oracle;
pub mod tier;
