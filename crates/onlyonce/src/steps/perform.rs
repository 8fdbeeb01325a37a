//! The way of an operation: claim it, run its program under a lease, and write down how that ended.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::StatusCode;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::StepsState;
use super::database::{Database, InsertError};
use super::decide::{Asked, Decision, Ended, after, decide};
use super::definition::{Program, StepsOutcome};
use super::error::{StepsError, StuckError, told};
use super::held::{Answer, Draft, Guard, Held};
use super::owned::{Owned, Start, WRITE_WAIT_MAX};
use super::rules::{ERROR_CHARS_MAX, jitter};
use super::run::{Finished, Run};
use super::stopped::{Reason, Stopped};
use crate::clock::{Clock, SystemClock, as_ms};
use crate::record::Token;

/// What a caller gets. Once the operation is begun, or may be, no error says that it is not.
pub(super) async fn ask<D: Database>(
    program: &Program<D>,
    database: &D,
    draft: Draft,
) -> Result<StepsOutcome, StepsError> {
    let (operation, mut may_be_begun) = (draft.id.clone(), false);
    let told = claim_and_do(program, database, draft, &mut may_be_begun).await;
    told.map_err(|error| if may_be_begun { error.of_begun(operation) } else { error })
}

/// Notes in `may_be_begun` whether the operation is begun, by whomever, or may be.
async fn claim_and_do<D: Database>(
    program: &Program<D>,
    database: &D,
    draft: Draft,
    may_be_begun: &mut bool,
) -> Result<StepsOutcome, StepsError> {
    for _ in 0..ROUNDS_MAX {
        let (token, asked_at) = (Token::random(), SystemClock.boot());
        let asked = Asked { name: &program.name, fingerprint: Some(&draft.fingerprint), token };
        let seen = database.load(&draft.id).await?;
        let decision = decide(seen.as_ref(), &asked, &program.rules);
        *may_be_begun |= !matches!(decision, Decision::Insert { .. });
        match (decision, seen) {
            (Decision::Insert { expired }, _) => {
                if insert(program, database, &draft, token, expired, may_be_begun).await? {
                    let Draft { revision, fingerprint, .. } = draft;
                    let start = Start { revision, attempts: 1, fingerprint, ..Start::default() };
                    let owned = owned(program, database, draft.id, token, start, asked_at);
                    return in_a_task(program, owned, draft.request).await;
                }
            }
            (Decision::Take(next), Some(held)) => {
                let guard = Guard { revision: held.revision, owner: None };
                if database.swap(&held.id, guard, &next).await? {
                    let (owned, request) = taken(program, database, held, token, asked_at);
                    return in_a_task(program, owned, request).await;
                }
            }
            (Decision::GiveUp(next), Some(held)) => {
                let guard = Guard { revision: held.revision, owner: None };
                database.swap(&held.id, guard, &next).await?;
            }
            (decision, Some(held)) => return answer(decision, held, &program.name),
            (_, None) => {}
        }
    }
    Ok(StepsOutcome::InProgress { retry_after: RETRY_AFTER })
}

async fn insert<D: Database>(
    program: &Program<D>,
    database: &D,
    draft: &Draft,
    token: Token,
    expired: Option<i64>,
    may_be_begun: &mut bool,
) -> Result<bool, StepsError> {
    let lease_ms = as_ms(program.rules.lease);
    let inserted = database.insert(draft, token, lease_ms, expired).await;
    *may_be_begun |= matches!(inserted, Ok(true) | Err(InsertError::Unsure(_)));
    inserted.map_err(|error| match error {
        InsertError::NotMade(error) => error,
        InsertError::Unsure(error) => StepsError::Database(error),
    })
}

/// An operation that was read and then taken.
pub(super) fn taken<D: Database>(
    program: &Program<D>,
    database: &D,
    held: Held,
    token: Token,
    asked_at: Duration,
) -> (Owned<D>, String) {
    let start = Start {
        revision: held.revision + 1,
        attempts: held.attempts.saturating_add(1),
        points: held.points,
        calling: held.calling,
        fingerprint: held.fingerprint,
    };
    (owned(program, database, held.id, token, start, asked_at), held.request)
}

fn owned<D: Database>(
    program: &Program<D>,
    database: &D,
    id: String,
    token: Token,
    start: Start,
    asked_at: Duration,
) -> Owned<D> {
    Owned::new(database.clone(), id, token, program.rules, start, asked_at)
}

/// The answer to a caller who does not run the steps.
fn answer(decision: Decision, held: Held, asked: &str) -> Result<StepsOutcome, StepsError> {
    let operation = held.id;
    match decision {
        Decision::Replay => replay(operation, held.answer),
        Decision::Reused => Ok(StepsOutcome::Reused),
        Decision::InProgress { retry_after } => Ok(StepsOutcome::InProgress { retry_after }),
        Decision::Unknown => {
            let (since, error) = (Some(held.since), held.error.unwrap_or_default());
            Ok(StepsOutcome::Unknown { operation, since, error })
        }
        Decision::Stuck => {
            let why = StuckError::Found(held.error.unwrap_or_default());
            Err(StepsError::Stuck { operation, why })
        }
        Decision::OtherProgram => {
            Err(StepsError::OtherProgram { operation, stored: held.name, asked: asked.to_owned() })
        }
        Decision::Insert { .. } | Decision::Take(_) | Decision::GiveUp(_) => {
            Ok(StepsOutcome::InProgress { retry_after: RETRY_AFTER })
        }
    }
}

fn replay(operation: String, answer: Option<Answer>) -> Result<StepsOutcome, StepsError> {
    let Some(answer) = answer else {
        return Err(StepsError::Reply { operation, status: None, error: "it is not there".into() });
    };
    answer.reply().map(StepsOutcome::Replay).map_err(|error| {
        let status = u16::try_from(answer.status).ok();
        let status = status.and_then(|status| StatusCode::from_u16(status).ok());
        StepsError::Reply { operation, status, error: error.into() }
    })
}

/// A client that hangs up must not stop a call.
async fn in_a_task<D: Database>(
    program: &Program<D>,
    owned: Owned<D>,
    request: String,
) -> Result<StepsOutcome, StepsError> {
    let program = program.clone();
    let task = tokio::spawn(async move { execute(&program, owned, &request).await });
    task.await.unwrap_or_else(|error| Err(StepsError::Database(error.into())))
}

/// Runs the program under the lease, and writes down how it ended.
pub(super) async fn execute<D: Database>(
    program: &Program<D>,
    owned: Owned<D>,
    request: &str,
) -> Result<StepsOutcome, StepsError> {
    let owned = Arc::new(owned);
    let keeper = owned.clone();
    let keeping = AbortOnDrop(tokio::spawn(async move { keeper.keep().await }).abort_handle());
    let reason = match attempt(program, &owned, request).await {
        Ok(Finished(reply)) => return Ok(StepsOutcome::Done(reply)),
        Err(Stopped(reason)) => reason,
    };
    drop(keeping);
    write_down(&owned, reason, &program.name).await
}

/// Runs the program; again, from its last point, if a transaction of it met another one.
async fn attempt<D: Database>(
    program: &Program<D>,
    owned: &Arc<Owned<D>>,
    request: &str,
) -> Result<Finished, Stopped> {
    let mut conflicts = 0;
    loop {
        match once(program, owned, request).await {
            Err(Stopped(Reason::Conflict(error))) if conflicts < CONFLICTS_MAX => {
                tracing::debug!(%error, "the transaction met another; trying again");
                sleep(CONFLICT_PAUSE * 2_u32.pow(conflicts)).await;
                conflicts += 1;
            }
            ended => return ended,
        }
    }
}

async fn once<D: Database>(
    program: &Program<D>,
    owned: &Arc<Owned<D>>,
    request: &str,
) -> Result<Finished, Stopped> {
    let run = Run::new(owned.clone());
    let running = async {
        let started = (program.start)(run, request);
        started.map_err(|error| Stopped(StuckError::Request(error.into()).into()))?.await
    };
    let running = timeout(program.rules.attempt_max, AssertUnwindSafe(running).catch_unwind());
    tokio::select! {
        ended = running => match ended {
            Ok(Ok(ended)) => ended,
            Ok(Err(panic)) => Err(Stopped::failed(panic_text(&*panic))),
            Err(elapsed) => Err(Stopped::failed(elapsed)),
        },
        () = owned.until_lost() => Err(Stopped(Reason::Lost)),
    }
}

/// Writes down how an attempt ended, and tells it.
async fn write_down<D: Database>(
    owned: &Owned<D>,
    reason: Reason,
    name: &str,
) -> Result<StepsOutcome, StepsError> {
    let ended = match &reason {
        Reason::Lost => return found(owned, name).await,
        Reason::InDoubt(_) => Ended::InDoubt,
        Reason::Failed(_) | Reason::Conflict(_) => Ended::Failed,
        Reason::Stuck(_) => Ended::Stuck,
    };
    let text = stored_text(&reason);
    let (calling, attempts) = (owned.calling(), owned.attempts());
    let next = after(ended, calling, attempts, text.clone(), &owned.rules, jitter());
    tell(owned, name, ended, next.state, &text);
    match timeout(WRITE_WAIT_MAX, owned.swap(&next)).await {
        Ok(Ok(true)) if next.state == StepsState::Unknown => {
            let operation = owned.id.clone();
            return Ok(StepsOutcome::Unknown { operation, since: None, error: text });
        }
        // Another owner has it, or a commit was made whose reply was lost.
        Ok(Ok(false)) => return found(owned, name).await,
        // The lease will be over without it.
        Ok(Ok(true)) | Ok(Err(_)) | Err(_) => {}
    }
    let operation = owned.id.clone();
    Err(match reason {
        Reason::Stuck(why) => StepsError::Stuck { operation, why },
        Reason::Failed(error) | Reason::Conflict(error) | Reason::InDoubt(error) => {
            StepsError::Failed { operation, error }
        }
        Reason::Lost => StepsError::MaybeBegun { operation, error: "another owner has it".into() },
    })
}

/// What the row says, for a caller whose attempt was not the one that counts.
async fn found<D: Database>(owned: &Owned<D>, name: &str) -> Result<StepsOutcome, StepsError> {
    let Some(held) = owned.database.load(&owned.id).await? else {
        return Ok(StepsOutcome::InProgress { retry_after: RETRY_AFTER });
    };
    // The key may have expired since, and be used for another request.
    let asked = Asked { name, fingerprint: Some(&owned.fingerprint), token: owned.token };
    let decision = decide(Some(&held), &asked, &owned.rules);
    answer(decision, held, name)
}

fn tell<D: Database>(owned: &Owned<D>, name: &str, ended: Ended, state: StepsState, error: &str) {
    let (operation, state) = (&owned.id, state.name());
    match ended {
        Ended::Failed => tracing::warn!(operation, name, state, error, "an attempt failed"),
        Ended::Stuck => tracing::error!(operation, name, error, "an operation is stuck"),
        Ended::InDoubt => tracing::error!(operation, name, error, "an operation is unknown"),
    }
}

/// What operators read: bounded, and without characters that a database refuses.
fn stored_text(reason: &Reason) -> String {
    let text = match reason {
        Reason::Failed(error) | Reason::Conflict(error) | Reason::InDoubt(error) => told(&**error),
        Reason::Stuck(error) => told(error),
        Reason::Lost => String::new(),
    };
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(ERROR_CHARS_MAX).map(plain).collect()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the program panicked: {}", text.unwrap_or("without a text"))
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How often a caller looks again because the row changed between a read and a write.
const ROUNDS_MAX: usize = 5;
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often a program is run again at once because a transaction met another one.
const CONFLICTS_MAX: u32 = 5;
/// Before the first of them; it doubles.
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);
