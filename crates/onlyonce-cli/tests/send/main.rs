//! `onlyonce send` as a user runs it: exit codes, errors, the journal, and kills.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod lab;

mod heavy_kill;
mod journal;
mod keys;
mod messages;
mod printing;
mod usage;
