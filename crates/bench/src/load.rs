//! A closed loop: so many callers, each with one cycle in flight.

use std::rc::Rc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// What one run measured.
#[derive(Clone, Debug)]
pub struct Run {
    /// Cycles per second.
    pub rate: f64,
    /// How long each claim took, sorted.
    pub claims: Vec<Duration>,
}

impl Run {
    /// The claim that 99 of 100 were faster than.
    pub fn claim_p99(&self) -> Duration {
        self.claim_percentile(99)
    }

    /// The claim that so many of 100 were faster than.
    pub fn claim_percentile(&self, percent: usize) -> Duration {
        let at = self.claims.len() * percent / 100;
        self.claims.get(at).copied().unwrap_or_default()
    }
}

/// One cycle of whatever is measured: a durable claim, then a durable settle.
pub trait Cycle: 'static {
    /// The claim; what it returns goes to the settle.
    type Claimed;

    /// A durable claim.
    fn claim(&self) -> impl Future<Output = Self::Claimed>;

    /// A durable settle.
    fn settle(&self, claimed: Self::Claimed) -> impl Future<Output = ()>;
}

/// `in_flight` callers for `length`, on one thread.
pub fn run<C: Cycle>(cycle: C, in_flight: usize, length: Duration) -> Run {
    let runtime =
        Builder::new_current_thread().enable_io().build().expect("a runtime can be built");
    let cycle = Rc::new(cycle);
    let start = SystemClock.boot();
    let callers = LocalSet::new();
    let claims = callers.block_on(&runtime, async {
        let callers =
            (0..in_flight).map(|_| tokio::task::spawn_local(caller(cycle.clone(), start + length)));
        let mut claims = Vec::new();
        for caller in callers.collect::<Vec<_>>() {
            claims.extend(caller.await.expect("a caller does not panic"));
        }
        claims
    });
    let took = SystemClock.boot() - start;
    finished(claims, took)
}

/// `in_flight` callers for `length`, spread over so many threads; `cycle` makes the cycle of each.
pub fn run_on_threads<C: Cycle>(
    threads: usize,
    in_flight: usize,
    length: Duration,
    cycle: impl Fn(usize) -> C + Sync,
) -> Run {
    let threads = threads.min(in_flight);
    let one = &|thread| run(cycle(thread), in_flight / threads, length);
    let runs: Vec<Run> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|at| scope.spawn(move || one(at))).collect();
        let joined = running.into_iter().map(ScopedJoinHandle::join);
        joined.map(|run| run.expect("a caller does not panic")).collect()
    });
    let mut claims: Vec<Duration> = runs.iter().flat_map(|run| run.claims.clone()).collect();
    claims.sort_unstable();
    Run { rate: runs.iter().map(|run| run.rate).sum(), claims }
}

async fn caller<C: Cycle>(cycle: Rc<C>, end: Duration) -> Vec<Duration> {
    let mut claims = Vec::new();
    loop {
        let before = SystemClock.boot();
        if before >= end {
            return claims;
        }
        let claimed = cycle.claim().await;
        claims.push(SystemClock.boot() - before);
        cycle.settle(claimed).await;
    }
}

fn finished(mut claims: Vec<Duration>, took: Duration) -> Run {
    claims.sort_unstable();
    Run { rate: claims.len() as f64 / took.as_secs_f64(), claims }
}
