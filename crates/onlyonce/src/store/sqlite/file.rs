//! The store file and the files beside it: ownership, opening, connections and the write-ahead log.

pub(super) mod checkpoint;
pub(super) mod connection;
pub(super) mod open;
pub(super) mod ownership;
pub(super) mod wal_check;
