//! Connections to the upstream: nothing before the first byte of a request counts as sent, and no connection
//! is used that the upstream may be about to close.

mod connecting;
mod http2;
mod idle;
mod peer;
