//! The commands of `onlyonce`, one module each.

pub mod config;
