//! How records are written in the file: tables, rows, columns and their checksums.

pub(super) mod audit_rows;
pub(super) mod columns;
pub(super) mod meta;
pub(super) mod place;
pub(super) mod routes;
pub(super) mod rows;
pub(super) mod schema;
pub(super) mod statements;
