//! What the command `onlyonce` is made of.

pub mod commands;
pub mod config;
pub mod demo;
pub mod gateway;
