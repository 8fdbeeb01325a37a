//! The completer: goes on with operations whose owner is gone, or whose next attempt is due.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::database::{Chosen, Database, Due};
use super::decide::{Asked, Decision, decide};
use super::definition::{Program, Steps};
use super::error::StepsError;
use super::held::Held;
use super::passed_over::PassedOver;
use super::perform::{execute, taken};
use super::rules::jitter;
use crate::clock::{Clock, SystemClock};
use crate::record::Token;

/// Completes what clients have left: operations whose lease is over, and those that wait for their next attempt. Run as many
/// as you like, in any process: they share the work.
///
/// It knows the programs that it is given, and leaves operations of other names alone.
pub struct Completer<D: Database> {
    database: D,
    programs: HashMap<Arc<str>, Program<D>>,
    running_max: usize,
    poll_max: Duration,
}

impl<D: Database> Completer<D> {
    /// A completer without programs, for 16 operations at a time.
    pub fn new(database: D) -> Self {
        let poll_max = Duration::from_secs(5);
        Self { database, programs: HashMap::new(), running_max: 16, poll_max }
    }

    /// Completes the operations of this name too.
    #[must_use]
    pub fn with<R>(mut self, steps: &Steps<D, R>) -> Self
    where
        R: Serialize + DeserializeOwned + Send + 'static,
    {
        self.programs.insert(steps.program.name.clone(), steps.program.clone());
        self
    }

    /// How many operations run at the same time: 16, at most 1,000. Each may hold a connection of the pool: leave some for your
    /// requests.
    #[must_use]
    pub fn with_running_max(mut self, running_max: usize) -> Self {
        self.running_max = running_max.clamp(1, RUNNING_MAX);
        self
    }

    /// How long an idle completer waits before it looks again: up to five seconds.
    #[must_use]
    pub fn with_poll_max(mut self, poll_max: Duration) -> Self {
        self.poll_max = poll_max.max(POLL_MIN);
        self
    }

    /// Completes operations for ever: also after an outage of the database.
    pub async fn run(self) {
        self.run_until(std::future::pending()).await;
    }

    /// Completes operations until `shutdown` ends. It takes no new ones then, and waits up to 30 seconds for those that run;
    /// what is left is stopped where it is, and goes on when its lease is over.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let (mut running, mut passed_over) = (JoinSet::new(), PassedOver::default());
        loop {
            let found = tokio::select! {
                // What it was about to take is nobody's then, and is due again when its lease is over.
                () = &mut shutdown => break,
                found = self.start_due(&mut running, &mut passed_over) => found,
            };
            let look_at = Instant::now() + self.pause(found);
            tokio::select! {
                () = &mut shutdown => break,
                // There is room again, and there may be more.
                Some(_) = running.join_next(), if found > 0 || running.len() == self.running_max => {}
                () = sleep_until(look_at) => {}
            }
            while running.try_join_next().is_some() {}
        }
        let all = async { while running.join_next().await.is_some() {} };
        if timeout(SHUTDOWN_WAIT_MAX, all).await.is_err() {
            tracing::warn!(
                "operations were stopped in the middle; they go on when their lease is over"
            );
        }
    }

    /// Starts what is due, as far as there is room; returns how many it has found.
    async fn start_due(&self, running: &mut JoinSet<()>, passed_over: &mut PassedOver) -> usize {
        let room = self.running_max.saturating_sub(running.len());
        if room == 0 || self.programs.is_empty() {
            return 0;
        }
        let asked_at = SystemClock.boot();
        let names: Vec<_> = self.programs.keys().map(|name| name.to_string()).collect();
        let choose = |held: &Held| self.choose(held);
        let found = self.database.take_due(&names, passed_over.ids(), room, choose).await;
        let Due { taken, unreadable } = found.unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the database did not tell what is due");
            Due::default()
        });
        let count = taken.len() + unreadable.len();
        passed_over.note(unreadable);
        for (held, token) in taken {
            self.start(held, token, asked_at, running);
        }
        count
    }

    fn choose(&self, held: &Held) -> Option<Chosen> {
        let program = self.programs.get(held.name.as_str())?;
        let token = Token::random();
        let asked = Asked { name: &program.name, fingerprint: None, token };
        match decide(Some(held), &asked, &program.rules) {
            Decision::Take(next) => Some(Chosen { next, taken: Some(token) }),
            Decision::GiveUp(next) => {
                let (operation, error) = (&held.id, next.error.as_deref().unwrap_or_default());
                tracing::error!(operation, name = held.name, error, "an operation is unknown");
                Some(Chosen { next, taken: None })
            }
            _ => None,
        }
    }

    fn start(&self, held: Held, token: Token, asked_at: Duration, running: &mut JoinSet<()>) {
        let Some(program) = self.programs.get(held.name.as_str()).cloned() else { return };
        let (owned, request) = taken(&program, &self.database, held, token, asked_at);
        running.spawn(async move {
            match execute(&program, owned, &request).await {
                // Told where it ended.
                Ok(_) | Err(StepsError::Failed { .. } | StepsError::Stuck { .. }) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, name = &*program.name, "an operation was not completed");
                }
            }
        });
    }

    /// Not the same for all completers.
    fn pause(&self, found: usize) -> Duration {
        match found {
            0 => self.poll_max.mul_f64(0.5 + jitter() / 2.0),
            _ => POLL_MIN,
        }
    }
}

impl<D: Database> fmt::Debug for Completer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer").field("programs", &self.programs.keys()).finish_non_exhaustive()
    }
}

const RUNNING_MAX: usize = 1_000;
const POLL_MIN: Duration = Duration::from_millis(50);
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(30);
