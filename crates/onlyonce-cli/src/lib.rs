//! What the command `onlyonce` is made of.

mod admin;
pub mod commands;
pub mod config;
mod credentials;
pub mod demo;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
mod tls;
mod torture;
mod words;
