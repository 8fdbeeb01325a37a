//! What the command `onlyonce` is made of.

mod admin;
pub mod commands;
pub mod config;
mod connections;
mod credentials;
pub mod demo;
mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
mod tls;
mod torture;
mod words;
