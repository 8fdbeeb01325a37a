//! What a load costs in DynamoDB: request units and money, on demand.

use super::measured::Measured;
use super::{Kind, Line, Plan, number, size};

impl Plan {
    /// Units are counted as DynamoDB does: a write takes one for each kilobyte of the item, a consistent read one for each
    /// four kilobytes, and an entry of the index is a write of its own.
    pub(super) fn dynamodb(&self) -> Vec<Line> {
        let Measured { record, body, .. } = Measured::of(Kind::DynamoDb);
        let (claimed, response) = (CLAIMED_BYTES, self.response as f64);
        let stored = record + response * body;
        let (claim, settle, replay) =
            (units(claimed, WRITE), units(stored, WRITE), units(stored, READ));
        let writes = claim + settle + INDEX_WRITES;
        let (operations, share) = (self.operations(), self.duplicates / 100.0);
        let retries = share / (1.0 - share);
        let dollars = writes * WRITE_DOLLARS + retries * replay * READ_DOLLARS;
        let stored_bytes = self.rows() * (stored + ITEM_OVERHEAD);
        let month = operations * MONTH_SECONDS / 1e6 * dollars + stored_bytes / 1e9 * GB_DOLLARS;
        vec![
            Line::new(
                "bytes_per_record",
                stored,
                format!("{} without its body + {response} × {body}, measured", number(record)),
                " bytes",
            ),
            Line::bytes(
                "disk_bytes",
                stored_bytes,
                format!(
                    "{} rows × ({} + {ITEM_OVERHEAD} bytes that DynamoDB adds)",
                    number(self.rows()),
                    number(stored)
                ),
            ),
            Line::new(
                "write_units_per_operation",
                writes,
                format!(
                    "{claim} (claim) + {settle} (settle) + {INDEX_WRITES} (the index: added, removed)"
                ),
                "",
            ),
            Line::new(
                "read_units_per_retry",
                replay,
                format!(
                    "{} bytes, one for each {} that are begun; {settle} write units instead on a node that did not see the key before",
                    number(stored),
                    size(READ)
                ),
                "",
            ),
            Line::new(
                "dollars_per_million",
                dollars,
                format!(
                    "{writes} × ${WRITE_DOLLARS} + {} retries × {replay} × ${READ_DOLLARS}, the prices of us-east-1 on demand",
                    number(retries)
                ),
                " dollars a million operations",
            ),
            Line::new(
                "dollars_per_month",
                month,
                format!(
                    "{} operations a second, and {} at ${GB_DOLLARS} a GB",
                    number(operations),
                    size(stored_bytes)
                ),
                " dollars a month",
            ),
        ]
    }
}

/// Begun units are whole.
fn units(bytes: f64, per: f64) -> f64 {
    (bytes / per).ceil().max(1.0)
}

/// An item with a claim, measured.
const CLAIMED_BYTES: f64 = 390.0;
const WRITE: f64 = 1024.0;
const READ: f64 = 4096.0;
/// The entry of the index is written by the claim and removed by the settle.
const INDEX_WRITES: f64 = 2.0;
/// What DynamoDB adds to each item when it counts storage.
const ITEM_OVERHEAD: f64 = 100.0;
/// For a million units, on demand in us-east-1.
const WRITE_DOLLARS: f64 = 0.625;
const READ_DOLLARS: f64 = 0.125;
const GB_DOLLARS: f64 = 0.25;
const MONTH_SECONDS: f64 = 30.0 * 86_400.0;
