//! What to do about an operation, given what the database holds for it. Pure: no database, no clock, no randomness.

use std::time::Duration;

use super::StepsState;
use super::held::{Calling, Held, Next};
use super::rules::Rules;
use crate::clock::as_ms;
use crate::record::Token;

/// Who asks, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// The name of the program.
    pub(super) name: &'a str,
    /// Of the request; `None` for a completer, which has none.
    pub(super) fingerprint: Option<&'a [u8]>,
    /// The token of an owner to be.
    pub(super) token: Token,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// There is none, or one that has expired: insert it, in place of the one with this revision.
    Insert { expired: Option<i64> },
    /// Write this, and go on with the steps.
    Take(Next),
    /// Write this, and look again.
    GiveUp(Next),
    /// It is completed.
    Replay,
    /// An owner does it, or it waits for its next attempt.
    InProgress { retry_after: Duration },
    /// The key was used for another request.
    Reused,
    /// A program of another name does it.
    OtherProgram,
    /// Its outcome is unknown.
    Unknown,
    /// It does not fit the program, and is not due yet.
    Stuck,
}

/// What a caller, or a completer, does about an operation.
pub(super) fn decide(seen: Option<&Held>, asked: &Asked<'_>, rules: &Rules) -> Decision {
    let Some(held) = seen else {
        return Decision::Insert { expired: None };
    };
    if held.answer.as_ref().is_some_and(|answer| answer.expires_at <= held.now) {
        return Decision::Insert { expired: Some(held.revision) };
    }
    if asked.fingerprint.is_some_and(|fingerprint| fingerprint != held.fingerprint) {
        return Decision::Reused;
    }
    let left_ms = held.due_at.map_or(0, |due_at| due_at.since_ms(held.now));
    match held.state {
        StepsState::Completed => Decision::Replay,
        StepsState::Unknown => Decision::Unknown,
        _ if held.name != asked.name => Decision::OtherProgram,
        StepsState::Stuck if left_ms > 0 => Decision::Stuck,
        _ if left_ms > 0 => Decision::InProgress { retry_after: retry_after(left_ms) },
        _ => take(held, asked.token, rules),
    }
}

/// What to do about an operation that is due.
fn take(held: &Held, token: Token, rules: &Rules) -> Decision {
    if let Some(calling) = held.calling.clone().filter(|calling| !calling.is_repeatable) {
        let name = &calling.name;
        let error = format!("its owner died amid {name:?}, which must not be called again");
        return Decision::GiveUp(unknown(held.attempts, Some(calling), error, rules));
    }
    if held.attempts >= rules.attempts_max && held.state != StepsState::Stuck {
        let last = held.error.as_deref().unwrap_or("its owners died");
        let error = format!("{} attempts without a new point; the last: {last}", held.attempts);
        return Decision::GiveUp(unknown(held.attempts, held.calling.clone(), error, rules));
    }
    Decision::Take(Next {
        state: StepsState::Running,
        token: Some(token),
        due_ms: Some(as_ms(rules.lease)),
        attempts: held.attempts.saturating_add(1),
        calling: held.calling.clone(),
        quiet_ms: rules.quiet_ms(),
        error: None,
    })
}

/// How an attempt ended that did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It failed, and may be tried again.
    Failed,
    /// What is stored does not fit the program.
    Stuck,
    /// What was done is not known, and it must not be tried again.
    InDoubt,
}

/// What the owner of an attempt that ended writes. `jitter` is between 0 and 1.
pub(super) fn after(
    ended: Ended,
    calling: Option<Calling>,
    attempts: u32,
    error: String,
    rules: &Rules,
    jitter: f64,
) -> Next {
    let pause = as_ms(rules.pause(attempts, jitter));
    let open = |state, calling, error| Next {
        state,
        token: None,
        due_ms: Some(pause),
        attempts,
        calling,
        quiet_ms: rules.quiet_ms(),
        error: Some(error),
    };
    let may_call = calling.as_ref().is_none_or(|calling| calling.is_repeatable);
    match ended {
        // Nothing was done in this attempt, so that it may be tried for ever; and some attempts are left for the version of
        // the program that fits.
        Ended::Stuck if may_call => Next {
            attempts: attempts.min(rules.attempts_max / 2),
            ..open(StepsState::Stuck, calling, error)
        },
        Ended::Failed if may_call && attempts < rules.attempts_max => {
            open(StepsState::Waiting, calling, error)
        }
        // Named, so that it is tried again only by a person who says that it was not done.
        Ended::InDoubt => {
            let name = calling.map_or_else(|| BETWEEN_STEPS.to_owned(), |calling| calling.name);
            let in_doubt = Calling { name, is_repeatable: false };
            unknown(attempts, Some(in_doubt), error, rules)
        }
        Ended::Failed | Ended::Stuck => unknown(attempts, calling, error, rules),
    }
}

/// What the owner writes before a call, and after one that was not made.
pub(super) fn calling(
    calling: Option<Calling>,
    token: Token,
    attempts: u32,
    rules: &Rules,
) -> Next {
    Next {
        state: StepsState::Running,
        token: Some(token),
        due_ms: Some(as_ms(rules.lease)),
        attempts,
        calling,
        quiet_ms: rules.quiet_ms(),
        error: None,
    }
}

fn unknown(attempts: u32, calling: Option<Calling>, error: String, rules: &Rules) -> Next {
    Next {
        state: StepsState::Unknown,
        token: None,
        due_ms: None,
        attempts,
        calling,
        quiet_ms: rules.quiet_ms(),
        error: Some(error),
    }
}

/// At least a second, so that nobody asks in a loop, and at most a minute.
fn retry_after(left_ms: i64) -> Duration {
    let left = Duration::from_millis(left_ms.unsigned_abs());
    left.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
}

/// What is in doubt if the program says so, and no step or call is.
const BETWEEN_STEPS: &str = "between the steps";
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
