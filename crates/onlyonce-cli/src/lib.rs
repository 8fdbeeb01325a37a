//! What the command `onlyonce` is made of.

pub mod config;
