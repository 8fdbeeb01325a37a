//! The store file and the files beside it: ownership, opening, connections and the write-ahead log.

pub(super) mod checkpoint;
pub(super) mod connection;
pub(super) mod header;
pub(super) mod inspect;
mod names;
pub(super) mod open;
pub(super) mod ownership;
mod wal_check;
