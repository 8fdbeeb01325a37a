//! The commands of `onlyonce`, one module each.

pub mod config;
pub mod exit;
pub mod send;
pub mod serve;
