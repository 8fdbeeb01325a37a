//! The listener for operators: the page, health, metrics, and the API that the page and the commands call.
//!
//! 1. Nothing here is reachable through the listener of the clients.
//! 2. What is found and changed is the library's affair ([`onlyonce::Operations`]); here are only its words.
//! 3. Who may call is decided before anything is read ([`auth`]), and every answer has the same security headers.

mod answer;
mod asked;
mod audit;
mod auth;
mod base64;
mod body;
mod bulk;
mod change;
mod csv_in;
mod csv_out;
mod desk;
mod events;
mod filter;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod hot_keys;
mod life;
mod listen;
mod openapi;
mod operations;
mod page;
mod policy;
mod recent;
mod router;
mod routes;
mod samples;
mod shape;
mod summary;
mod verdict;
mod watch;

pub(crate) use self::auth::Keeper;
pub(crate) use self::base64::encode as base64;
pub(crate) use self::desk::{ADMIN_LISTENER, Desk, PolicyInForce, Setting};
pub(crate) use self::listen::serve;
pub(crate) use self::policy::in_force;
pub(crate) use self::router::GATEWAY;
