//! The ways in which a wrong store goes wrong.

use std::sync::Arc;

use onlyonce::clock::StoreTime;
use onlyonce::record::{Record, Revision, SettledBy, State, StateKind, StateSet, Token};
use onlyonce::scope::OperationId;
use onlyonce::store::cas::{self, Effect};
use onlyonce::store::{Draft, Guard, Lease, Next};

use super::defect::Defect;
use super::store::{Disk, Wrong};

/// Of a claim.
impl Wrong {
    /// What a claim finds: all but what the defect overlooks.
    pub(super) fn found<'a>(
        &self,
        disk: &'a Disk,
        draft: &Draft,
        now: StoreTime,
    ) -> Option<&'a Record> {
        let there = disk.records.get(&draft.id);
        there.filter(|record| match self.defect {
            Some(Defect::ClaimReplacesExpired) => !record.is_expired(now),
            Some(Defect::ClaimReplacesReleased) => !matches!(record.state, State::Released { .. }),
            Some(Defect::ClaimReplacesUnknown) => !matches!(record.state, State::Unknown { .. }),
            _ => true,
        })
    }

    pub(super) fn obeyed(&self, draft: &Draft) -> Draft {
        let mut obeyed = draft.clone();
        match self.defect {
            Some(Defect::ClaimIgnoresNotAfter) => obeyed.not_after = StoreTime::MAX,
            Some(Defect::ClaimEndsTooSoon) => obeyed.not_after = draft.not_after.plus_ms(-1),
            Some(Defect::ClaimForgetsTheRoute) => obeyed.route = "".into(),
            _ => {}
        }
        obeyed
    }

    /// Where the record of `id` is.
    pub(super) fn place(&self, id: OperationId) -> OperationId {
        let mut bytes = *id.as_bytes();
        if self.is(Defect::IdsAreHalved) {
            bytes[8..].fill(0);
        }
        OperationId::from_bytes(bytes)
    }
}

/// Of a swap.
impl Wrong {
    pub(super) fn guard(&self, guard: Guard, current: Option<&Record>) -> Guard {
        let Some(record) = current else { return guard };
        match (self.defect, guard) {
            (Some(Defect::OwnerNeedsNoToken), Guard::Owner { states, .. }) => {
                Guard::Owner { token: record.token, states }
            }
            (Some(Defect::OwnerNeedsNoState), Guard::Owner { token, .. }) => {
                Guard::Owner { token, states: StateSet::of(&StateKind::ALL) }
            }
            (Some(Defect::RevisionIsTheCount), Guard::Unchanged(revision))
                if revision.count == record.count =>
            {
                Guard::Unchanged(record.revision())
            }
            _ => guard,
        }
    }

    pub(super) fn next(&self, to: Next) -> Next {
        match (self.defect, to) {
            (Some(Defect::TakeIgnoresNotAfter), Next::Running(mut attempt)) => {
                attempt.draft.not_after = StoreTime::MAX;
                Next::Running(attempt)
            }
            (Some(Defect::TakeForgetsItsOrigin), Next::Running(mut attempt)) => {
                attempt.taken_from = None;
                Next::Running(attempt)
            }
            (Some(Defect::ReturnIsSinceNow), Next::Unknown { .. }) => Next::Unknown { since: None },
            (Some(Defect::ReturnIsSinceNow), Next::Released { .. }) => {
                Next::Released { expires_at: None }
            }
            (_, to) => to,
        }
    }

    /// The revision that was written; `None` if it is stale.
    pub(super) fn write(
        &self,
        disk: &mut Disk,
        id: OperationId,
        guard: &Guard,
        effect: Effect,
    ) -> Option<Revision> {
        match effect {
            Effect::Stale => None,
            Effect::Already(_) if self.is(Defect::RepeatIsStale) => None,
            Effect::Already(revision) => Some(revision),
            Effect::Delete(revision) => {
                disk.delete(id);
                Some(revision)
            }
            Effect::Write(record) => {
                let record = self.spoilt(*record, guard);
                let revision = record.revision();
                disk.records.insert(id, record);
                Some(revision)
            }
        }
    }

    fn spoilt(&self, mut record: Record, guard: &Guard) -> Record {
        let (first, ttl_ms) = (record.first_claimed_at, record.ttl_ms);
        match (self.defect, &mut record.state) {
            (Some(Defect::WriteForgetsTheAttempt), State::Unknown { .. }) => record.attempt = 1,
            (Some(Defect::ReapTakesTheToken), State::Unknown { .. })
                if matches!(guard, Guard::Unchanged(_)) =>
            {
                record.token = Token::from_bytes([9; 16]);
            }
            (Some(Defect::UnknownIsSinceTheClaim), State::Unknown { since }) => *since = first,
            (
                Some(Defect::TtlCountsFromClaim),
                State::Completed { expires_at, .. } | State::Released { expires_at },
            ) => *expires_at = first.plus_ms(ttl_ms),
            (Some(Defect::TimeWraps), State::Completed { expires_at, .. })
                if *expires_at == StoreTime::MAX =>
            {
                *expires_at = StoreTime::from_ms(first.as_ms().wrapping_add(ttl_ms));
            }
            (Some(Defect::SettlerIsForgotten), State::Completed { settled_by, .. }) => {
                *settled_by = SettledBy::Owner;
            }
            (Some(defect), State::Completed { response, .. }) => {
                *response = Arc::new(defect.spoil(response));
            }
            _ => {}
        }
        record
    }

    /// What an `UPDATE` without a `WHERE` would do, of a record that is there.
    pub(super) fn overwrite(&self, disk: &mut Disk, id: OperationId, to: &Next, now: StoreTime) {
        let Some(record) = disk.records.get(&id).cloned() else {
            return;
        };
        let guard = Guard::Unchanged(record.revision());
        let effect = cas::swap(Some(&record), &guard, to, now);
        self.write(disk, id, &guard, effect);
    }
}

/// Of a renewal.
impl Wrong {
    pub(super) fn renewed(
        &self,
        current: Option<&Record>,
        token: Token,
        lease: Lease,
        now: StoreTime,
    ) -> Option<Record> {
        let mut record = current?.clone();
        if self.is(Defect::RenewRevives) {
            record.state = State::Running { lease_until: now };
        }
        let token = match self.defect {
            Some(Defect::RenewNeedsNoToken) => record.token,
            _ => token,
        };
        let mut renewed = cas::renew(Some(&record), token, lease, now)?;
        match self.defect {
            Some(Defect::RenewKeepsTheRevision) => renewed.count = record.count,
            Some(Defect::RenewKeepsTheLease) => renewed.state = record.state,
            _ => {}
        }
        Some(renewed)
    }
}

/// Of a sweep.
impl Wrong {
    pub(super) fn expired(&self, until: StoreTime) -> Vec<OperationId> {
        let (disk, now) = self.lock();
        let now = if self.is(Defect::SweepAsksTheClock) { now } else { until };
        let is_over = |record: &Record| match self.defect {
            Some(Defect::SweepIgnoresTheState) => {
                record.first_claimed_at.plus_ms(record.ttl_ms) <= now
            }
            Some(Defect::SweepIgnoresExpiry) => record.is_expired(StoreTime::MAX),
            Some(Defect::SweepSparesReleased) => {
                record.is_expired(now) && record.state.kind() != StateKind::Released
            }
            _ => record.is_expired(now),
        };
        let expired = disk.records.iter().filter(|(_, record)| is_over(record));
        expired.map(|(id, _)| *id).collect()
    }
}
