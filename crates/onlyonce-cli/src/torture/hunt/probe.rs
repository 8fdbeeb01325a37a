//! Plain requests before the attacks: does the target work, how long does it take, do two executions differ?

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tokio::time::timeout_at;

use super::{Hunt, NoHunt, TIME_MIN};
use crate::torture::observed::{Event, Observed};
use crate::torture::plan::{
    Caller, Options, PAIRS_MAX, PLAIN, PLAIN_FAILED_MAX, Shot, Trial, probe,
};
use crate::torture::wire::{Answer, Outcome, h2};

/// What plain requests showed.
#[derive(Clone, Debug)]
pub(crate) struct Baseline {
    pub(crate) time: std::time::Duration,
    /// Two keys get two different answers, apart from marker and key.
    pub(crate) has_unique_answers: bool,
}

impl Hunt {
    /// Sends plain requests, and learns what is normal.
    pub(crate) async fn probe(&mut self, options: &Options) -> Result<Baseline, NoHunt> {
        self.check_seed(options).await?;
        let plain = self.succeeding(options, Caller::A, PLAIN).await?;
        if options.has_second_caller {
            self.succeeding(options, Caller::B, 1).await?;
        }
        let mut times: Vec<_> =
            plain.iter().map(|(_, event)| event.until.saturating_sub(event.from)).collect();
        times.sort();
        self.time = times[times.len() / 2].max(TIME_MIN);
        self.answer_bytes = plain[0].1.answer().map_or(self.answer_bytes, |answer| answer.length);
        let pair = self.pair(options).await;
        self.see_probes().await?;
        self.speaks_http2 = h2::is_spoken(&self.http2[0]).await;
        let has_unique_answers = pair.is_some_and(|pair| differ(plain.iter().chain(&pair)));
        Ok(Baseline { time: self.time, has_unique_answers })
    }

    async fn check_seed(&self, options: &Options) -> Result<(), NoHunt> {
        if !self.oracle.counts() {
            return Ok(());
        }
        let marker = probe(options, 0, Caller::A).marker;
        match timeout_at(self.until(), self.oracle.count(&marker)).await {
            Ok(Ok(0)) => Ok(()),
            Ok(Ok(_)) => Err(NoHunt::SeedUsed),
            Ok(Err(error)) => Err(NoHunt::Blind(error)),
            Err(_) => {
                Err(NoHunt::Blind("executions could not be counted within --time-limit".to_owned()))
            }
        }
    }

    /// So many plain requests that succeed, each with a key of its own. Some may fail: a target that fails now and then
    /// by itself can be attacked all the same.
    async fn succeeding(
        &mut self,
        options: &Options,
        caller: Caller,
        wanted: usize,
    ) -> Result<Vec<(Trial, Event)>, NoHunt> {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        while done.len() < wanted {
            let trial = probe(options, self.observed.len(), caller);
            self.try_out(trial.clone()).await;
            match self.observed.last().and_then(|observed| observed.events.last()) {
                Some(event) if event.is_success() => done.push((trial, event.clone())),
                Some(event) => failed.push(event.outcome.clone()),
                None => return Err(NoHunt::Target(told(caller, done.len(), &failed) + TIME_OVER)),
            }
            if failed.len() == PLAIN_FAILED_MAX {
                return Err(NoHunt::Target(told(caller, done.len(), &failed)));
            }
        }
        Ok(done)
    }

    /// Two plain requests at the same instant. Answers that have only a time in them may be equal then.
    async fn pair(&mut self, options: &Options) -> Option<[(Trial, Event); 2]> {
        for _ in 0..PAIRS_MAX {
            let at = self.observed.len();
            let trials = [at, at + 1].map(|number| probe(options, number, Caller::A));
            self.pace().await;
            self.counts.sent += 1;
            let this = &*self;
            let flying = trials.iter().map(|trial| async move {
                let shot = Shot::plain(&trial.key);
                this.fly(trial, &shot).await
            });
            let events = join_all(flying).await;
            for (trial, event) in trials.iter().zip(&events) {
                let observed =
                    Observed { events: vec![event.clone()], ..Observed::new(trial.clone()) };
                self.done(observed);
            }
            if let (true, Ok([one, two])) =
                (events.iter().all(Event::is_success), <[Event; 2]>::try_from(events))
            {
                let [first, second] = trials;
                return Some([(first, one), (second, two)]);
            }
        }
        None
    }

    /// Whether the oracle sees what was executed.
    async fn see_probes(&mut self) -> Result<(), NoHunt> {
        if !self.oracle.counts() {
            return Ok(());
        }
        self.settle(0, self.limits.settle).await;
        let is_unseen = |observed: &&Observed| {
            !observed.successes().is_empty() && observed.count.unwrap_or_default() == 0
        };
        match self.observed.iter().find(is_unseen).map(|observed| &observed.count_error) {
            None => Ok(()),
            Some(Some(error)) => Err(NoHunt::Blind(error.clone())),
            Some(None) => Err(NoHunt::Blind(
                "the target answered that it succeeded, but no execution was counted".to_owned(),
            )),
        }
    }
}

/// Whether no two answers are equal, apart from marker and key.
fn differ<'a>(plain: impl Iterator<Item = &'a (Trial, Event)>) -> bool {
    let mut bodies: Vec<_> = plain
        .filter_map(|(trial, event)| event.answer().map(|answer| without_names(answer, trial)))
        .collect();
    let count = bodies.len();
    bodies.sort();
    bodies.dedup();
    bodies.len() == count
}

/// The body without marker and key: what is left differs only if executions differ.
fn without_names(answer: &Answer, trial: &Trial) -> String {
    let body = String::from_utf8_lossy(&answer.body);
    body.replace(&trial.key, "").replace(&trial.marker, "")
}

/// What plain requests got, each with a key of its own.
fn told(caller: Caller, succeeded: usize, failed: &[Outcome]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in failed {
        *counts.entry(outcome.brief()).or_default() += 1;
    }
    let got: Vec<_> = counts.iter().map(|(got, count)| format!("{got} ({count})")).collect();
    let (who, flags) = match caller {
        Caller::A => ("", "--json, -H and --auth-a"),
        Caller::B => ("as --auth-b, ", "--auth-b"),
    };
    format!(
        "{who}{} of {} plain requests, each with a new key, failed: {}; torture needs some that succeed (see {flags})",
        failed.len(),
        failed.len() + succeeded,
        got.join(", ")
    )
}

const TIME_OVER: &str = "; then the time limit came";
