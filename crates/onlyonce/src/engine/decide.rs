//! What to do about a request, given what the store holds for its key.

use std::sync::Arc;

use crate::clock::{StoreTime, as_ms};
use crate::engine::Write;
use crate::engine::table::Phase;
use crate::planted::{Planted, planted};
use crate::policy::Recovery;
use crate::record::{Record, Response, Revision, State, TakenFrom, sent_as};
use crate::store::{Draft, Seen};

/// The request in question.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its claim.
    pub draft: &'a Draft,
    /// What its route does about unknown outcomes.
    pub recovery: Recovery,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The claim is ours: execute.
    Execute {
        /// The number of this attempt.
        attempt: u32,
        /// Where it returns to if it is not executed.
        taken_from: Option<TakenFrom>,
    },
    /// Answer from the record.
    Replay(Arc<Response>),
    /// The key was used for another request: refuse.
    Reused,
    /// The key was used for the same request to another spelling of its path: refuse.
    Respelled,
    /// The first request is still at work: refuse or wait.
    InProgress,
    /// Nobody knows whether it was executed: say so.
    Unknown {
        /// Since when.
        since: StoreTime,
    },
    /// Nobody's: take it by this write, then look again.
    Take(Box<Write>),
    /// `recovery = "release"`: give it back by this write, then look again.
    Release(Box<Write>),
    /// `recovery = "fail"`: settle this revision with the route's own answer, then look again.
    Fail(Revision),
    /// `recovery = "reconcile"`: ask what became of it, settle it if that is known, then look again.
    Reconcile {
        /// Since when it is unknown.
        since: StoreTime,
    },
    /// Our claim reached the store too late, or lapsed before we knew that it was ours: give it up.
    GiveUp,
}

/// The decision for `asked`, from what the store has `seen`.
pub fn decide(seen: &Seen, asked: Asked<'_>) -> Decision {
    let Some(record) = &seen.record else {
        return Decision::GiveUp;
    };
    if seen.mine || planted(Planted::NoClaim) {
        return Decision::Execute { attempt: record.attempt, taken_from: record.taken_from };
    }
    let phase = Phase::of(Some(record), seen.now);
    if record.token == asked.draft.token {
        return Decision::GiveUp;
    }
    if matches!(phase, Phase::Expired | Phase::Released)
        || planted(Planted::UnknownIsAbsent) && phase == Phase::Unknown
        || planted(Planted::RunningIsAbsent) && phase == Phase::Running
    {
        let write = Write::take(record, phase == Phase::Expired, asked.draft.clone());
        return Decision::Take(Box::new(write));
    }
    if !record.fingerprint.matches(&asked.draft.fingerprint) {
        return match record.fingerprint.is_respelled(&asked.draft.fingerprint) {
            true => Decision::Respelled,
            false => Decision::Reused,
        };
    }
    match &record.state {
        State::Completed { response, .. } => Decision::Replay(response.clone()),
        State::Unknown { since } => recover(record, *since, seen, asked),
        State::Running { .. } | State::Released { .. } => Decision::InProgress,
    }
}

/// What a client's retry does about an unknown outcome: nothing, unless the route says otherwise.
fn recover(record: &Record, since: StoreTime, seen: &Seen, asked: Asked<'_>) -> Decision {
    let unknown = Decision::Unknown { since };
    match asked.recovery {
        Recovery::Hold => unknown,
        Recovery::Reconcile { .. } => Decision::Reconcile { since },
        Recovery::Fail => Decision::Fail(record.revision()),
        Recovery::Release => {
            let write = Write::release_for(record, seen.now, false);
            write.map_or(unknown, |write| Decision::Release(Box::new(write)))
        }
        Recovery::Redrive { within } => {
            let same_bytes = record.fingerprint.raw == asked.draft.fingerprint.raw;
            // A record from the future is one of a clock that was put back: nobody knows how old it is.
            let in_time = (0..as_ms(within)).contains(&seen.now.since_ms(record.first_claimed_at));
            // An upstream that was given the key otherwise would not know it again.
            let same_way = record.sent_as() == sent_as(&asked.draft.target);
            if same_bytes && in_time && same_way {
                Decision::Take(Box::new(Write::redrive(record, since, asked.draft.clone())))
            } else {
                unknown
            }
        }
    }
}

#[cfg(test)]
mod tests;
