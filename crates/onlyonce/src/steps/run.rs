//! A run of the steps: what is committed already is skipped, and its memory returned.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::database::{Change, CommitError, Database};
use super::decide;
use super::error::StuckError;
use super::held::Calling;
use super::lent::lend;
use super::owned::Owned;
use super::rules::{NAME_BYTES_MAX, POINTS_MAX, VALUE_BYTES_MAX};
use super::stopped::{Reason, Stopped};
use crate::Failure;
use crate::clock::as_ms;
use crate::scope::OperationId;
use crate::store::BoxError;
use crate::transaction::Reply;

/// One run of an operation's steps. The program asks for its steps one after the other; a step whose point is committed is
/// not done again, and returns what it remembered.
///
/// What the program does between its steps is done again in every run. So the program must ask for the same steps in the same
/// order whenever the request and the remembered values are the same: read clocks, random numbers and other state inside of a
/// step, and let the step remember it. A program that asks for another step than the stored one stops, and the operation is
/// [`StepsState::Stuck`](super::StepsState::Stuck).
#[must_use = "finish it"]
pub struct Run<D: Database> {
    owned: Arc<Owned<D>>,
    /// The steps that the program has asked for.
    asked: Vec<String>,
    /// A step was begun and did not end well, or was dropped. Nothing follows it: a program that ignores an error, or puts a
    /// timeout around a step, must not go on as if the step was done.
    is_stopped: bool,
}

/// The proof that a run has finished: its answer is committed.
#[derive(Debug)]
#[must_use = "return it from the program"]
pub struct Finished(pub(super) Reply);

impl<D: Database> Run<D> {
    pub(super) fn new(owned: Arc<Owned<D>>) -> Self {
        Self { owned, asked: Vec::new(), is_stopped: false }
    }

    /// A step that works in the database. What `work` writes in its transaction commits together with the point `name` and the
    /// value that it returns; at most 64 KiB of JSON.
    ///
    /// The work must not end the transaction, and must not call other services: see [`Run::call`].
    pub async fn step<T>(
        &mut self,
        name: &str,
        work: impl AsyncFnOnce(D::Tx) -> Result<T, BoxError>,
    ) -> Result<T, Stopped>
    where
        T: Serialize + DeserializeOwned,
    {
        if let Some(value) = self.remembered(name, Kind::Step)? {
            return Ok(value);
        }
        let owned = self.owned.clone();
        let still = owned.hold_still().await.map_err(Stopped)?;
        let (value, open) = self.worked(name, work).await?;
        let change = self.point(name, &value).map_err(Stopped::failed)?;
        self.commit(name, &change, open).await?;
        drop(still);
        self.passed(name);
        Ok(value)
    }

    /// A call to another service, which must recognise the key that it is given: the call is made again with the same key if
    /// its result could not be committed. The key is [derived](OperationId::derive) from the operation and `name`. What `call`
    /// returns is remembered, at most 64 KiB of JSON: a definite refusal is a value too.
    ///
    /// The name is committed before the call is made for the first time. A version of the program that asks for something else
    /// at this place is stuck, because it would make the call with another key.
    ///
    /// After an error the attempt has failed, and the call is made again in the next one.
    pub async fn call<T>(
        &mut self,
        name: &str,
        call: impl AsyncFnOnce(String) -> Result<T, Failure>,
    ) -> Result<T, Stopped>
    where
        T: Serialize + DeserializeOwned,
    {
        if let Some(value) = self.remembered(name, Kind::Call)? {
            return Ok(value);
        }
        self.mark_start(name, true).await?;
        self.owned.demand_lease().await.map_err(Stopped)?;
        let value = match call(self.key(name)).await {
            Ok(value) => value,
            Err(Failure::NotDone(error) | Failure::Unknown(error)) => {
                return Err(Stopped::failed(error));
            }
        };
        let change = self.point(name, &value).map_err(Stopped::failed)?;
        self.commit_called(&change).await?;
        self.passed(name);
        Ok(value)
    }

    /// A call to another service that does not recognise keys, so that it must never be repeated. Its start is committed
    /// before the call is made. If the process dies amid it, or `call` returns an error, the operation is
    /// [`StepsState::Unknown`](super::StepsState::Unknown): a person finds out and settles or retries it. Only after
    /// [`Failure::NotDone`] is it called again.
    pub async fn call_once<T>(
        &mut self,
        name: &str,
        call: impl AsyncFnOnce(String) -> Result<T, Failure>,
    ) -> Result<T, Stopped>
    where
        T: Serialize + DeserializeOwned,
    {
        if let Some(value) = self.remembered(name, Kind::CallOnce)? {
            return Ok(value);
        }
        self.mark_start(name, false).await?;
        // The commit may have taken longer than the lease, and the operation may be in other hands.
        if let Err(reason) = self.owned.demand_lease().await {
            self.withdraw_start().await?;
            return Err(Stopped(reason));
        }
        match call(self.key(name)).await {
            Ok(value) => {
                let change = self.point(name, &value).map_err(Stopped::in_doubt)?;
                self.commit_called(&change).await?;
                self.passed(name);
                Ok(value)
            }
            Err(Failure::NotDone(error)) => {
                self.withdraw_start().await?;
                Err(Stopped::failed(error))
            }
            Err(Failure::Unknown(error)) => Err(Stopped::in_doubt(error)),
        }
    }

    /// Finishes the operation: what `work` writes commits together with the answer that it returns.
    pub async fn finish(
        self,
        work: impl AsyncFnOnce(D::Tx) -> Result<Reply, BoxError>,
    ) -> Result<Finished, Stopped> {
        let number = self.asked.len();
        if self.is_stopped {
            return Err(Stopped::failed(STOPPED));
        }
        if let Some(stored) = self.owned.point(number) {
            let removed = StuckError::Removed { number: number + 1, stored: stored.name };
            return Err(Stopped(removed.into()));
        }
        self.demand_same_call("", Kind::Finish)?;
        let _still = self.owned.hold_still().await.map_err(Stopped)?;
        let (reply, open) = self.worked(FINISH, work).await?;
        self.commit(FINISH, &Change::Finish(reply.clone()), open).await?;
        Ok(Finished(reply))
    }

    /// The operation's id: the same in every run. As a unique column of a business table it is the last line of defence.
    pub fn operation_id(&self) -> &str {
        &self.owned.id
    }

    /// The key that the call `name` is given.
    pub fn key(&self, name: &str) -> String {
        let id: OperationId = self.owned.id.parse().expect("the id is a UUID");
        id.derive(name)
    }

    /// What the step remembered, if its point is committed.
    fn remembered<T: DeserializeOwned>(
        &mut self,
        name: &str,
        kind: Kind,
    ) -> Result<Option<T>, Stopped> {
        let number = self.asked.len();
        if std::mem::replace(&mut self.is_stopped, true) {
            return Err(Stopped::failed(STOPPED));
        }
        check_name(name, &self.asked).map_err(|error| Stopped(error.into()))?;
        let Some(point) = self.owned.point(number) else {
            self.demand_same_call(name, kind)?;
            return Ok(None);
        };
        if point.name != name {
            let (stored, asked) = (point.name, name.to_owned());
            let changed = StuckError::Changed { number: number + 1, stored, asked };
            return Err(Stopped(changed.into()));
        }
        let value = serde_json::from_str(&point.value).map_err(|error| {
            let (step, error) = (name.to_owned(), error.into());
            Stopped(StuckError::Memory { step, error }.into())
        })?;
        self.passed(name);
        Ok(Some(value))
    }

    /// Nothing but the call itself, with its name and so with its key, follows a call that an earlier attempt has begun.
    fn demand_same_call(&self, asked: &str, kind: Kind) -> Result<(), Stopped> {
        match self.owned.calling() {
            Some(calling) if calling.name != asked || kind != Kind::Call => {
                let (stored, asked) = (calling.name, kind.told(asked));
                Err(Stopped(StuckError::CallChanged { stored, asked }.into()))
            }
            _ => Ok(()),
        }
    }

    /// The step is committed: the next one may follow.
    fn passed(&mut self, name: &str) {
        self.asked.push(name.to_owned());
        self.is_stopped = false;
    }

    /// Does the work in a new transaction, and returns the transaction.
    async fn worked<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(D::Tx) -> Result<T, BoxError>,
    ) -> Result<(T, D::Work), Stopped> {
        self.owned.demand_lease().await.map_err(Stopped)?;
        let open = self.owned.database.begin(&self.owned.id, self.asked.len()).await;
        let (lent, home) = lend(open.map_err(Stopped)?);
        let worked = work(D::Tx::from((self.owned.id.clone(), lent))).await;
        match (worked, home.take()) {
            (Ok(value), Some(open)) => Ok((value, open)),
            // Whoever has it now may commit it.
            (Ok(_), None) => Err(self.in_doubt(name, KEPT.into())),
            (Err(error), None) => Err(self.in_doubt(name, error)),
            (Err(error), Some(open)) => Err(self.failed_work(name, error, open).await),
        }
    }

    /// Work that failed is rolled back and may be done again, unless it has ended its transaction by itself.
    async fn failed_work(&self, name: &str, error: BoxError, open: D::Work) -> Stopped {
        match self.owned.database.has_ended(open).await {
            true => self.in_doubt(name, error),
            false if D::is_conflict(&error) => Stopped(Reason::Conflict(error)),
            false => Stopped::failed(error),
        }
    }

    fn in_doubt(&self, step: &str, error: BoxError) -> Stopped {
        self.owned.mark_in_doubt(step);
        Stopped::in_doubt(error)
    }

    fn point(&self, name: &str, value: &impl Serialize) -> Result<Change, BoxError> {
        let value = serde_json::to_string(value)?;
        if value.len() > VALUE_BYTES_MAX {
            let bytes = value.len();
            return Err(format!(
                "step {name:?} remembers {bytes} bytes, more than {VALUE_BYTES_MAX}"
            )
            .into());
        }
        let lease_ms = as_ms(self.owned.rules.lease);
        Ok(Change::Point { number: self.asked.len(), name: name.to_owned(), value, lease_ms })
    }

    /// Commits the work of a step.
    async fn commit(&self, name: &str, change: &Change, open: D::Work) -> Result<(), Stopped> {
        self.owned.commit(change, Some(open)).await.map_err(|error| match error {
            CommitError::Stale => Stopped(Reason::Lost),
            CommitError::Conflict(error) => Stopped(Reason::Conflict(error)),
            CommitError::EndedByWork(error) => self.in_doubt(name, error),
            CommitError::Unsure(error) => Stopped::failed(error),
        })
    }
}

/// Calls.
impl<D: Database> Run<D> {
    /// Commits the result of a call. It is tried several times: without its result the call would be made again, or be in
    /// doubt.
    async fn commit_called(&self, change: &Change) -> Result<(), Stopped> {
        let mut tries = 1;
        loop {
            let error = match self.owned.commit(change, None).await {
                Ok(()) => return Ok(()),
                Err(CommitError::Stale) if tries > 1 && self.owned.is_committed(change).await => {
                    return Ok(());
                }
                Err(CommitError::Stale) => return Err(Stopped(Reason::Lost)),
                Err(
                    CommitError::Conflict(error)
                    | CommitError::EndedByWork(error)
                    | CommitError::Unsure(error),
                ) => error,
            };
            if tries == COMMIT_TRIES_MAX {
                return Err(Stopped::failed(error));
            }
            sleep(COMMIT_PAUSE * 2_u32.pow(tries)).await;
            tries += 1;
        }
    }

    /// Commits that a call begins, unless an earlier attempt has done so. It is tried several times, as the result of a call
    /// is: a start whose reply was lost would leave the operation unknown, although the call was never made.
    async fn mark_start(&self, name: &str, is_repeatable: bool) -> Result<(), Stopped> {
        let owned = &self.owned;
        let calling = Calling { name: name.to_owned(), is_repeatable };
        if owned.calling().as_ref() == Some(&calling) {
            return Ok(());
        }
        let begun = Some(calling.clone());
        let next = decide::calling(begun, owned.token, owned.attempts(), &owned.rules);
        let mut tries = 1;
        loop {
            let error = match owned.swap(&next).await {
                Ok(true) => return Ok(()),
                Ok(false) if tries > 1 && owned.is_marked(&calling).await => return Ok(()),
                Ok(false) => return Err(Stopped(Reason::Lost)),
                Err(error) => error,
            };
            if tries == COMMIT_TRIES_MAX {
                return Err(Stopped::failed(error));
            }
            sleep(COMMIT_PAUSE * 2_u32.pow(tries)).await;
            tries += 1;
        }
    }

    /// Commits that the call was not made. If that fails, the operation becomes unknown: safe, and rare.
    async fn withdraw_start(&self) -> Result<(), Stopped> {
        let owned = &self.owned;
        let next = decide::calling(None, owned.token, owned.attempts(), &owned.rules);
        match owned.swap(&next).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Stopped(Reason::Lost)),
            Err(error) => Err(Stopped::failed(error)),
        }
    }
}

/// What a program asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Step,
    Call,
    CallOnce,
    Finish,
}

impl Kind {
    fn told(self, name: &str) -> String {
        match self {
            Self::Step => format!("the step {name:?}"),
            Self::Call => format!("the call {name:?}"),
            Self::CallOnce => format!("the call {name:?}, which must not be repeated,"),
            Self::Finish => "the end".to_owned(),
        }
    }
}

/// The name tells the step apart, and its key is derived from it.
fn check_name(name: &str, asked: &[String]) -> Result<(), StuckError> {
    let why = match name {
        "" => "it is empty",
        _ if name.len() > NAME_BYTES_MAX => "it is longer than 200 bytes",
        _ if name.contains(char::is_control) => "it has control characters",
        _ if asked.iter().any(|before| before == name) => {
            "another step of this operation has that name"
        }
        _ if asked.len() >= POINTS_MAX => "the operation has 1,000 steps already",
        _ => return Ok(()),
    };
    Err(StuckError::Name { name: name.chars().take(NAME_BYTES_MAX).collect(), why })
}

impl<D: Database> fmt::Debug for Run<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("operation", &self.owned.id).finish_non_exhaustive()
    }
}

/// What is in doubt if the work of the end has ended its transaction.
const FINISH: &str = "finish";
const KEPT: &str = "the work has kept the transaction of its step";
const STOPPED: &str = "an earlier step of this run did not end well, and nothing follows it";
/// How often the result of a call is tried to be committed: for about six seconds.
const COMMIT_TRIES_MAX: u32 = 6;
const COMMIT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
