//! Carries the plan out: sends, cuts, waits, and writes down what happened.

mod probe;
mod send;
mod settle;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::observed::{Counts, Event, HOOK_FAILED, Observed};
use super::oracle::Oracle;
use super::plan::{CONFIRM_MAX, Hook, INSIST_MAX, Over, Program, Shot, Step, Trial};
use super::progress::Progress;
use super::target::Target;
use super::wire::{Connector, Outcome};

pub(crate) use self::probe::Baseline;

/// The commands of the user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) kill: Option<String>,
    pub(crate) start: Option<String>,
    pub(crate) pid: Option<i32>,
    pub(crate) lease: Duration,
    pub(crate) store_restart: Option<String>,
    pub(crate) store_flush: Option<String>,
}

/// How much may be sent, and how fast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests_max: usize,
    pub(crate) rate: u32,
    pub(crate) patience: Duration,
    /// How long an execution may come after its answer.
    pub(crate) settle: Duration,
    /// How long the attacks may last; what was done by then is counted and judged.
    pub(crate) time: Duration,
}

/// Why a trial was not carried out, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Skip {
    /// `--requests-max`.
    Ceiling,
    /// An interrupt.
    Stop,
    /// `--time-limit`.
    Time,
}

impl Skip {
    /// For people.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Ceiling => "--requests-max",
            Self::Stop => "the interrupt",
            Self::Time => "--time-limit",
        }
    }
}

/// One run.
#[derive(Debug)]
pub(crate) struct Hunt {
    pub(crate) target: Arc<Target>,
    pub(crate) oracle: Oracle,
    pub(crate) hooks: Hooks,
    pub(crate) limits: Limits,
    pub(crate) progress: Progress,
    pub(crate) is_stopped: Arc<AtomicBool>,
    pub(crate) counts: Counts,
    pub(crate) observed: Vec<Observed>,
    /// Trials that were not carried out, or not to their end.
    pub(crate) skipped: BTreeMap<Program, Vec<Skip>>,
    pub(crate) speaks_http2: bool,
    pub(crate) epoch: Instant,
    http1: Vec<Connector>,
    http2: Vec<Connector>,
    next_at: Instant,
    time: Duration,
    answer_bytes: usize,
}

/// Why there was no hunt.
#[derive(Debug)]
pub(crate) enum NoHunt {
    /// Nothing answers there, or a plain request is refused.
    Target(String),
    /// The seed was used against this target before.
    SeedUsed,
    /// Executions are not seen.
    Blind(String),
}

impl Hunt {
    pub(crate) fn new(
        target: Target,
        tls: Option<&rustls::ClientConfig>,
        oracle: Oracle,
        limits: Limits,
        progress: Progress,
    ) -> Self {
        let connectors = |protocol: &str| -> Vec<_> {
            target.nodes.iter().map(|node| Connector::new(node, tls, protocol)).collect()
        };
        Self {
            http1: connectors("http/1.1"),
            http2: connectors("h2"),
            target: Arc::new(target),
            oracle,
            hooks: Hooks::default(),
            limits,
            progress,
            is_stopped: Arc::default(),
            counts: Counts::default(),
            observed: Vec::new(),
            skipped: BTreeMap::new(),
            speaks_http2: false,
            epoch: Instant::now(),
            next_at: Instant::now(),
            time: Duration::from_millis(50),
            answer_bytes: 200,
        }
    }

    /// Carries out the trials of a program, then counts what was executed.
    pub(crate) async fn run(&mut self, program: Program, trials: Vec<Trial>) {
        let first = self.observed.len();
        let count = trials.len();
        for (number, trial) in trials.into_iter().enumerate() {
            self.progress.at(program, number, count, &self.counts);
            let is_over_http2 = trial
                .steps
                .iter()
                .any(|step| step.shots().iter().any(|shot| shot.over == Over::Http2));
            if is_over_http2 && !self.speaks_http2 {
                continue;
            }
            match self.skip(&trial) {
                Some(why) => self.note_skip(program, why),
                None => self.try_out(trial).await,
            }
        }
        self.settle(first, self.limits.settle).await;
        self.progress.done(program, &self.observed, first);
    }

    fn skip(&self, trial: &Trial) -> Option<Skip> {
        if self.is_stopped.load(Ordering::Relaxed) {
            Some(Skip::Stop)
        } else if Instant::now() >= self.until() {
            Some(Skip::Time)
        } else if self.counts.sent + trial.requests_max() > self.limits.requests_max {
            Some(Skip::Ceiling)
        } else {
            None
        }
    }

    fn note_skip(&mut self, program: Program, why: Skip) {
        self.skipped.entry(program).or_default().push(why);
        match why {
            Skip::Ceiling => self.counts.skipped_for_ceiling += 1,
            Skip::Stop => self.counts.skipped_for_stop += 1,
            Skip::Time => self.counts.skipped_for_time += 1,
        }
    }

    /// The end of the attacks.
    pub(super) fn until(&self) -> Instant {
        self.epoch + self.limits.time
    }

    async fn try_out(&mut self, trial: Trial) {
        if let (Oracle::Shim(shim), Some(misbehaviour)) = (&self.oracle, trial.misbehaviour) {
            shim.plan(&trial.marker, misbehaviour);
            self.counts.upstream_faults += 1;
        }
        let mut observed = Observed::new(trial.clone());
        for step in &trial.steps {
            if !self.step_in_time(&mut observed, step).await {
                observed.notes.push((self.epoch.elapsed(), "--time-limit came".to_owned()));
                self.note_skip(trial.program, Skip::Time);
                break;
            }
        }
        self.done(observed);
    }

    /// Whether the step ended before the end of the attacks. Commands of the user are not broken off: what was killed or
    /// stopped is started again.
    async fn step_in_time(&mut self, observed: &mut Observed, step: &Step) -> bool {
        if step.has_hook() {
            self.step(observed, step).await;
            return true;
        }
        let until = self.until();
        timeout_at(until, self.step(observed, step)).await.is_ok()
    }

    fn done(&mut self, observed: Observed) {
        self.counts.trials += 1;
        self.counts.note(&observed);
        self.observed.push(observed);
    }

    async fn step(&mut self, observed: &mut Observed, step: &Step) {
        match step {
            Step::One(shot) => {
                let event = self.send(&observed.trial, shot).await;
                observed.events.push(event);
            }
            Step::Insist(shot) => self.insist(observed, shot).await,
            Step::Confirm(shot) => self.confirm(observed, shot).await,
            Step::Wait(part) => sleep(self.part(*part).max(NOTICE_MIN)).await,
            Step::Burst(shots) => {
                self.counts.bursts += 1;
                let events = self.burst(&observed.trial, shots).await;
                observed.events.extend(events);
            }
            Step::Staggered(shots) => {
                let begin = Instant::now();
                self.counts.sent += shots.len();
                let this = &*self;
                let trial = &observed.trial;
                let flying = shots.iter().map(|(part, shot)| async move {
                    sleep_until(begin + this.part(*part)).await;
                    this.fly(trial, shot).await
                });
                let events = futures_util::future::join_all(flying).await;
                observed.events.extend(events);
            }
            Step::During(hook, part, shot) => {
                self.pace().await;
                self.counts.hooks += 1;
                let this = &*self;
                let hooking = async {
                    sleep(this.part(*part)).await;
                    (this.epoch.elapsed(), this.hook(*hook).await)
                };
                let (event, (at, told)) = tokio::join!(this.fly(&observed.trial, shot), hooking);
                observed.events.push(event);
                observed.notes.push((at, told));
            }
            Step::Run(hook) => {
                self.counts.hooks += 1;
                let at = self.epoch.elapsed();
                observed.notes.push((at, self.hook(*hook).await));
            }
        }
    }

    /// Sends until there is an answer that will not change by waiting.
    async fn insist(&mut self, observed: &mut Observed, shot: &Shot) {
        for number in 0..INSIST_MAX {
            let event = self.send(&observed.trial, shot).await;
            let status = event.outcome.answer().map(|answer| answer.status);
            observed.events.push(event);
            if status.is_some_and(|status| !TRANSIENT.contains(&status)) {
                return;
            }
            if number + 1 == INSIST_MAX {
                return;
            }
            // Twice as long each time: a service that is still at work has its time to finish.
            sleep((self.time * (1 << number)).min(INSIST_PAUSE_MAX)).await;
        }
    }

    /// Sends more often, if the answer to a retry broke off.
    async fn confirm(&mut self, observed: &mut Observed, shot: &Shot) {
        let mut retries = observed.events.iter().skip(1);
        if !retries.any(|event| matches!(event.outcome, Outcome::Broken(_))) {
            return;
        }
        for _ in 0..CONFIRM_MAX {
            let event = self.send(&observed.trial, shot).await;
            observed.events.push(event);
        }
    }

    /// A command of the user, and what came of it.
    async fn hook(&self, hook: Hook) -> String {
        let Hooks { kill, start, pid, lease, store_restart, store_flush } = &self.hooks;
        match hook {
            Hook::KillAndStart => {
                let killed = command("--kill-cmd", kill.as_deref()).await;
                let started = command("--start-cmd", start.as_deref()).await;
                self.until_connected().await;
                format!("{killed}; {started}")
            }
            Hook::StopAndContinue => {
                let Some(pid) = pid.and_then(Pid::from_raw) else { return "no pid".to_owned() };
                let stopped = kill_process(pid, Signal::STOP);
                sleep(*lease + *lease / 2).await;
                // Also where it could not be stopped: nobody is left standing.
                let continued = kill_process(pid, Signal::CONT);
                match stopped.and(continued) {
                    Ok(()) => "stopped for 1.5 leases, then continued".to_owned(),
                    Err(error) => format!("--pid {HOOK_FAILED}: {error}"),
                }
            }
            Hook::RestartStore => command("--store-restart-cmd", store_restart.as_deref()).await,
            Hook::FlushStore => command("--store-flush-cmd", store_flush.as_deref()).await,
        }
    }

    /// A service that was started again may need a while.
    async fn until_connected(&self) {
        let waiting = async {
            while self.http1[0].connect().await.is_err() {
                sleep(CONNECT_PAUSE).await;
            }
        };
        // A service that does not come back shows in the answers.
        let _ = timeout(START_TIMEOUT, waiting).await;
    }

    /// A part of a thousand of the service time.
    fn part(&self, part: u32) -> Duration {
        self.time * part / 1000
    }

    async fn send(&mut self, trial: &Trial, shot: &Shot) -> Event {
        self.pace().await;
        self.fly(trial, shot).await
    }

    /// Counts the request, and waits until the rate allows it.
    async fn pace(&mut self) {
        self.counts.sent += 1;
        sleep_until(self.next_at).await;
        self.next_at = Instant::now() + Duration::from_secs(1) / self.limits.rate;
    }
}

async fn command(name: &str, text: Option<&str>) -> String {
    let Some(text) = text else { return format!("{name} was not given") };
    let mut process = Command::new("sh");
    process.args(["-c", text]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match timeout(HOOK_TIMEOUT, process.status()).await {
        Ok(Ok(status)) if status.success() => format!("{name} ran"),
        Ok(Ok(status)) => format!("{name} {HOOK_FAILED}: {status}"),
        Ok(Err(error)) => format!("{name} {HOOK_FAILED}: {error}"),
        Err(_) => format!("{name} {HOOK_FAILED}: it did not end in time"),
    }
}

/// Answers that may change by waiting.
const TRANSIENT: [u16; 6] = [409, 425, 429, 502, 503, 504];
/// Shorter service times are not told apart.
const TIME_MIN: Duration = Duration::from_millis(5);
/// How long a target may take to notice that a connection has ended.
const NOTICE_MIN: Duration = Duration::from_millis(100);
const INSIST_PAUSE_MAX: Duration = Duration::from_secs(1);
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
const START_TIMEOUT: Duration = Duration::from_secs(20);
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);
