//! `onlyonce torture` as a user runs it: servers with planted bugs are caught, sound ones are not.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod closing;
mod lab;
mod server;

mod chance;
mod commands;
mod gateway;
mod limits;
mod planted;
mod report;
mod usage;
