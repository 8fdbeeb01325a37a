//! A program: the name and the code of an operation of several steps.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::database::Database;
use super::error::StepsError;
use super::held::Draft;
use super::perform;
use super::rules::{
    LEASE_MAX, LEASE_MIN, NAME_BYTES_MAX, REQUEST_BYTES_MAX, RETRY_PAUSE_MAX, Rules,
};
use super::run::{Finished, Run};
use super::stopped::Stopped;
use crate::Operation;
use crate::clock::StoreTime;
use crate::record::Token;
use crate::store::BoxError;
use crate::transaction::Reply;
use crate::transaction::parameters::Parameters;

/// An operation of several steps, by its name and its program. `R` is what it is asked: the request is stored, so that the
/// steps go on without the client.
pub struct Steps<D: Database, R> {
    pub(super) program: Program<D>,
    request: PhantomData<fn(&R)>,
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum StepsOutcome {
    /// This call has finished the operation.
    Done(Reply),
    /// The operation was finished before, and this is its answer.
    Replay(Reply),
    /// Another call is at it, or its next attempt is not due. Answer 409, and call again.
    InProgress {
        /// How long to wait before the next call.
        retry_after: Duration,
    },
    /// The key was used with another request. Answer 422; do not retry; use a new key for this operation.
    Reused,
    /// It is not known what was done, and nothing is done again by itself. A person settles or retries it.
    Unknown {
        /// The operation.
        operation: String,
        /// Since when; not told to the caller who finds out.
        since: Option<StoreTime>,
        /// Why.
        error: String,
    },
}

impl<D, R> Steps<D, R>
where
    D: Database,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    /// The operation `name`, whose steps `program` asks for. The name is stored with every operation: do not change it while
    /// there are some.
    ///
    /// # Panics
    /// If the name is empty or longer than 200 bytes.
    pub fn new<F, Fut>(name: &str, program: F) -> Self
    where
        F: Fn(Run<D>, R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Finished, Stopped>> + Send + 'static,
    {
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "steps need a name of 1 to 200 bytes");
        let start = move |run, request: &str| -> Result<Running, serde_json::Error> {
            Ok(Box::pin(program(run, serde_json::from_str(request)?)))
        };
        let program = Program { name: name.into(), rules: Rules::DEFAULT, start: Arc::new(start) };
        Self { program, request: PhantomData }
    }

    /// How long an owner may be silent: 30 seconds, from one second to an hour. It is renewed while the steps run. Shorter lets
    /// others go on earlier after a crash; it must be longer than a pause of the process or an outage of the database.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.program.rules.lease = lease.clamp(LEASE_MIN, LEASE_MAX);
        self
    }

    /// How many attempts without a new point make the operation unknown: 20.
    #[must_use]
    pub fn with_attempts_max(mut self, attempts_max: u32) -> Self {
        self.program.rules.attempts_max = attempts_max.max(1);
        self
    }

    /// How long the program may run: five minutes. Then it is stopped and the attempt counts as failed; one that is stopped amid
    /// [`Run::call_once`] is unknown. A program that is run again because its transaction met another one has the same time again,
    /// up to five times.
    #[must_use]
    pub fn with_attempt_max(mut self, attempt_max: Duration) -> Self {
        self.program.rules.attempt_max = attempt_max;
        self
    }

    /// The pause after a failed attempt: one second. It doubles with each attempt without a new point, up to ten minutes.
    #[must_use]
    pub fn with_retry_pause(mut self, retry_pause: Duration) -> Self {
        self.program.rules.retry_pause = retry_pause.min(RETRY_PAUSE_MAX);
        self
    }

    /// Does the steps of `operation` that are not committed yet, or tells what became of it. The request is its payload: the
    /// same key with another request is [`StepsOutcome::Reused`].
    ///
    /// The steps run in a task of their own: dropping this future does not stop them.
    ///
    /// # Errors
    /// If it is not known yet what became of it: see [`StepsError`]. Call again with the same key.
    pub async fn run(
        &self,
        database: &D,
        operation: &Operation,
        request: &R,
    ) -> Result<StepsOutcome, StepsError> {
        let draft = self.draft(operation, request)?;
        perform::ask(&self.program, database, draft).await
    }

    pub(super) fn draft(&self, operation: &Operation, request: &R) -> Result<Draft, StepsError> {
        let text = stored(request).map_err(StepsError::Request)?;
        let operation = operation.clone().with_payload(request);
        let operation = operation.map_err(|error| StepsError::Request(error.into()))?;
        let parameters = Parameters::of(&operation);
        let id = parameters.operation_id();
        let Parameters { scope, principal, key, fingerprint, ttl_ms } = parameters;
        let name = self.program.name.to_string();
        let revision = first_revision();
        Ok(Draft { id, name, scope, principal, key, fingerprint, ttl_ms, request: text, revision })
    }
}

impl<D: Database, R> Clone for Steps<D, R> {
    fn clone(&self) -> Self {
        Self { program: self.program.clone(), request: PhantomData }
    }
}

impl<D: Database, R> fmt::Debug for Steps<D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").field("name", &self.program.name).finish_non_exhaustive()
    }
}

/// The same without the type of its request.
pub(super) struct Program<D: Database> {
    pub(super) name: Arc<str>,
    pub(super) rules: Rules,
    pub(super) start: Arc<Start<D>>,
}

type Start<D> = dyn Fn(Run<D>, &str) -> Result<Running, serde_json::Error> + Send + Sync;
type Running = Pin<Box<dyn Future<Output = Result<Finished, Stopped>> + Send>>;

impl<D: Database> Clone for Program<D> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), rules: self.rules, start: self.start.clone() }
    }
}

/// 48 random bits, so that an operation never has a revision that an expired one with its id had.
fn first_revision() -> i64 {
    let [a, b, c, d, e, f, ..] = *Token::random().as_bytes();
    i64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn stored(request: &impl Serialize) -> Result<String, BoxError> {
    let text = serde_json::to_string(request)?;
    match text.len() {
        ..=REQUEST_BYTES_MAX => Ok(text),
        bytes => Err(format!("it has {bytes} bytes, more than {REQUEST_BYTES_MAX}").into()),
    }
}
