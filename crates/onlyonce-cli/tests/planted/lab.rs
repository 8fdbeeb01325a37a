//! A gateway, the service behind it, and the folder of its store.

use std::time::Duration;

use onlyonce::planted::Planted;
use tempfile::TempDir;

use crate::caller::{Answer, Ask, send};
use crate::clock::ShiftedClock;
use crate::gateway::{Gateway, Settings};
use crate::scripts::Script;
use crate::upstream::Upstream;

/// What a script plays with. All of it ends when it is dropped.
pub(crate) struct Lab {
    pub(crate) upstream: Upstream,
    pub(crate) gateway: Gateway,
    clock: Option<ShiftedClock>,
    bug: Option<Planted>,
    settings: Settings,
    folder: TempDir,
}

impl Lab {
    pub(crate) async fn start(bug: Option<Planted>, script: Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let upstream = Upstream::start().await;
        let settings = script.settings();
        let clock = settings.has_own_clock.then(|| ShiftedClock::new(folder.path()));
        let (path, address) = (folder.path(), upstream.address);
        let gateway = Gateway::start(bug, path, address, clock.as_ref(), settings).await;
        Self { upstream, gateway, clock, bug, settings, folder }
    }

    /// Starts the gateway again, on the same store, after it was killed or has ended.
    pub(crate) async fn restart(&mut self) {
        let (folder, address) = (self.folder.path(), self.upstream.address);
        let clock = self.clock.as_ref();
        self.gateway = Gateway::start(self.bug, folder, address, clock, self.settings).await;
    }

    /// Sets the clock of the gateway's machine forward.
    pub(crate) fn set_clock_ahead(&self, days: u32) {
        self.clock.as_ref().expect("the script has a clock of its own").set_ahead(days);
    }

    pub(crate) async fn send(&self, ask: &Ask) -> Result<Answer, String> {
        send(self.gateway.address, ask).await
    }

    /// Sends in a task of its own.
    pub(crate) fn send_apart(&self, ask: &Ask) -> tokio::task::JoinHandle<Result<Answer, String>> {
        let (address, ask) = (self.gateway.address, ask.clone());
        tokio::spawn(async move { send(address, &ask).await })
    }

    /// The answer once it is another one than "in progress".
    pub(crate) async fn send_to_the_end(&self, ask: &Ask) -> Result<Answer, String> {
        for _ in 0..LOOKS {
            let answer = self.send(ask).await?;
            if answer.code().as_deref() != Some(IN_PROGRESS) {
                return Ok(answer);
            }
            tokio::time::sleep(LOOK).await;
        }
        Err("the operation does not end".to_owned())
    }

    /// Waits until the service has executed this often.
    pub(crate) async fn executed(&self, times: usize) -> Result<(), String> {
        let is_so = || self.upstream.executions() >= times;
        self.becomes(&format!("{times} executions"), is_so).await
    }

    pub(crate) async fn becomes(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        for _ in 0..LOOKS {
            if is_so() {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(format!("waited in vain for {what}"))
    }

    /// That the service has executed exactly this often.
    pub(crate) fn must_have_executed(&self, times: usize) -> Result<(), String> {
        match self.upstream.executions() {
            executions if executions == times => Ok(()),
            executions => Err(format!("executed {executions} times, not {times}")),
        }
    }
}

pub(crate) const IN_PROGRESS: &str = "idempotency_in_progress";
pub(crate) const UNKNOWN: &str = "idempotency_outcome_unknown";
const LOOK: Duration = Duration::from_millis(20);
/// Of `LOOK` each: longer than anything takes that a script waits for.
const LOOKS: usize = 2_000;
