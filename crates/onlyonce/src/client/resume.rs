//! Finishes the operations that an earlier process began, with the same keys.

use std::time::Duration;

use super::Client;
use super::diary::Diary;
use super::journal::{JournalError, Open, Taken};
use super::outcome::{SendError, SendOutcome, Stop};
use super::transport::Transport;
use crate::key::Key;

/// What became of the operations that were open.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Resumed {
    /// The operations that were sent or looked up, the oldest first.
    pub operations: Vec<(Key, Result<SendOutcome, SendError>)>,
    /// How many were skipped, because too many requests failed. Resume again later.
    pub left: usize,
    /// What could not be read from the journal, or could not be written to it although the outcome is known.
    /// Such an operation is still in the journal, and the next resume takes it up.
    pub failures: Vec<(Key, JournalError)>,
}

impl<T: Transport + Clone> Client<T> {
    /// Finishes the operations that are open in the journal, one after the other, each with its own key and
    /// as the budget allows. Without a journal nothing is open.
    ///
    /// 1. An operation that was sent before is in doubt from the start: a refusal does not settle it unless
    ///    the service has that refusal on record.
    /// 2. An operation that the service may have forgotten is looked up, not sent again. One that may have been
    ///    executed is not sent either while nothing tells how long the service keeps its key.
    /// 3. Headers of the client replace those of the same name in the journal, for credentials that were
    ///    renewed: be sure that the service still knows you as the same caller. The key and the headers that
    ///    describe the body stay as they are in the journal.
    pub async fn resume(&self) -> Result<Resumed, JournalError> {
        self.resume_and_tell(|_, _| Ok(())).await
    }

    /// Finishes them like [`resume`](Client::resume), and passes each outcome to `tell` before the journal lets go of
    /// its operation: see [`send_and_tell`](super::Request::send_and_tell). Where `tell` returns an error, no further
    /// operation is sent.
    pub async fn resume_and_tell(
        &self,
        mut tell: impl FnMut(&Key, &Result<SendOutcome, SendError>) -> std::io::Result<()>,
    ) -> Result<Resumed, JournalError> {
        let Some(journal) = &self.journal else {
            return Ok(Resumed::default());
        };
        let _lock = journal.lock().await?;
        let open = journal.entries().await?;
        let mut resumed = Resumed { left: open.len(), ..Resumed::default() };
        let mut failures = 0;
        for Open { key, .. } in &open {
            if failures >= FAILURES_MAX || !self.has_budget().await {
                break;
            }
            resumed.left -= 1;
            let mut taken = match journal.load(key, self.course()).await {
                Ok(Some(taken)) => taken,
                Ok(None) => continue,
                Err(error) => {
                    resumed.failures.push((key.clone(), error));
                    continue;
                }
            };
            taken.operation.replace_headers(&self.headers, &self.retries.settings.key_header);
            let (end, noted) = self.take_up(taken, true, |end| tell(key, end)).await;
            failures = if did_not_get_through(&end) { failures + 1 } else { 0 };
            resumed.operations.push((key.clone(), end));
            let is_told = !matches!(noted, Err(JournalError::NotTold(_)));
            resumed.failures.extend(noted.err().map(|error| (key.clone(), error)));
            if !is_told {
                break;
            }
        }
        Ok(resumed)
    }

    /// Sends an operation of the journal, or returns why it is not sent again; and whether the journal took the result,
    /// once it was told.
    pub(super) async fn take_up(
        &self,
        taken: Taken,
        is_resumed: bool,
        tell: impl FnOnce(&Result<SendOutcome, SendError>) -> std::io::Result<()>,
    ) -> (Result<SendOutcome, SendError>, Result<(), JournalError>) {
        let Taken { entry, operation, mut course, closed, has_body } = taken;
        let run = self.run(Diary { entry: Some(entry.clone()) }, is_resumed);
        let mut transport = self.transport.clone();
        let stop = match closed {
            Some(stop) => Some(stop),
            None => run.bar(&mut transport, &operation, &mut course).await,
        };
        let stop = stop.or_else(|| (!has_body).then_some(Stop::Body));
        let end = match stop {
            Some(stop) => run.without_sending(&mut transport, &operation, &course, stop).await,
            None => run.perform(&mut transport, operation, course).await,
        };
        let noted = entry.note_told(&end, tell(&end)).await;
        (end, noted)
    }

    /// Waits until the budget allows one more operation, for a minute at most.
    async fn has_budget(&self) -> bool {
        let environment = &self.retries.environment;
        for _ in 0..BUDGET_LOOKS_MAX {
            if self.retries.budget.takes_up(environment.boot()) {
                return true;
            }
            environment.sleep(BUDGET_LOOK).await;
        }
        false
    }
}

fn did_not_get_through(end: &Result<SendOutcome, SendError>) -> bool {
    matches!(end, Err(_) | Ok(SendOutcome::Unknown { stop: Stop::WindowUnknown, .. }))
}

/// After so many operations in a row did not get through, the rest is left for a later resume.
const FAILURES_MAX: usize = 5;
const BUDGET_LOOK: Duration = Duration::from_millis(100);
/// How often the budget is asked before an operation is skipped: for a minute in all.
const BUDGET_LOOKS_MAX: usize = 600;
