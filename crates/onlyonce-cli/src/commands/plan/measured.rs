//! What a record costs in each store, measured by `tests/plan.rs`, which fails when a figure is off by more than a fifth.
//!
//! DynamoDB's is measured by `tests/dynamodb_faults/cost.rs` of the library.
//!
//! Of a request through the layer: a key of 36 characters, a route of 16, and an answer with a content type.

use super::Kind;

pub(super) struct Measured {
    /// The bytes of a record without the body of its answer, indexes included.
    pub(super) record: f64,
    /// The bytes that a byte of the body takes. Measured with 300 and 3,000 bytes: a page of 4 KiB with one answer of
    /// 3,000 bytes is partly empty.
    pub(super) body: f64,
    /// The bytes of a record in the memory of the gateway.
    pub(super) memory: f64,
    /// The bytes of a log that does not grow with the records.
    pub(super) log: f64,
}

impl Measured {
    pub(super) fn of(store: Kind) -> Self {
        match store {
            Kind::Sqlite => Self { record: 225.0, body: 1.35, memory: 34.0, log: SQLITE_LOG },
            Kind::Postgres => Self { record: 360.0, body: 1.4, memory: 0.0, log: POSTGRES_LOG },
            Kind::Redis => Self { record: 565.0, body: 1.03, memory: 0.0, log: 0.0 },
            Kind::DynamoDb => Self { record: 460.0, body: 1.0, memory: 0.0, log: 0.0 },
        }
    }
}

/// The most that the log of a store file grows to.
const SQLITE_LOG: f64 = (256 << 20) as f64;
/// The default of `max_wal_size`.
const POSTGRES_LOG: f64 = (1 << 30) as f64;
