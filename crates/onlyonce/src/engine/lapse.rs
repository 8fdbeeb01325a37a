//! Which running records were left by a dead owner.
//!
//! Only the reaper judges a lapse. A record lapses when the store's clock calls its lease over *and*
//! this node has itself seen its revision unchanged for a full lease, on a clock that nobody can set.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::StoreTime;
use crate::engine::Write;
use crate::planted::{Planted, planted};
use crate::record::{Record, Revision, State};
use crate::scope::OperationId;

/// What one reaper remembers between its scans.
#[derive(Debug, Default)]
pub struct Lapses {
    seen: HashMap<OperationId, Sight>,
    pass: u64,
}

#[derive(Debug)]
struct Sight {
    revision: Revision,
    first_seen: Duration,
    pass: u64,
}

impl Lapses {
    /// Begins a scan of all running records.
    pub fn begin(&mut self) {
        self.pass += 1;
    }

    /// Remembers a running record at the store's `now` and this node's `boot`; the write that marks it
    /// unknown if it has lapsed.
    pub fn judge(
        &mut self,
        id: OperationId,
        record: &Record,
        now: StoreTime,
        boot: Duration,
    ) -> Option<Write> {
        let State::Running { lease_until } = record.state else {
            return None;
        };
        let revision = record.revision();
        let fresh = Sight { revision, first_seen: boot, pass: self.pass };
        let sight = self.seen.entry(id).or_insert(fresh);
        sight.pass = self.pass;
        if sight.revision != revision {
            (sight.revision, sight.first_seen) = (revision, boot);
        }
        let lease = Duration::from_millis(record.lease_ms.unsigned_abs());
        let is_silent =
            boot.saturating_sub(sight.first_seen) >= lease || planted(Planted::ReaperByStoreClock);
        // A lease that ends later than one that is given now is one of a clock that was put back.
        let is_over = lease_until <= now || lease_until > now.plus_ms(record.lease_ms);
        (is_silent && is_over).then(|| Write::reap(revision))
    }

    /// Ends the scan: what it did not meet is forgotten.
    pub fn end(&mut self) {
        let pass = self.pass;
        self.seen.retain(|_, sight| sight.pass == pass);
    }
}
