//! What a seed decides: the kind of run, its clients' requests, and when which fault comes.

use std::time::Duration;

use fastrand::Rng;

pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) is_verbose: bool,
    pub(crate) kind: Kind,
    /// Whether duplicates wait for the answer of the first, or get 409.
    pub(crate) waits: bool,
    /// Whether the store wakes waiters, or leaves them to poll.
    pub(crate) wakes: bool,
    pub(crate) faults: Vec<(Duration, Fault)>,
}

/// What the clocks and the times to live of a run are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Answers live for a day, hosts crash.
    Crashes,
    /// Answers live for a day, someone sets the store's clock by days. No gateway starts meanwhile: a node that starts believes
    /// the clock that it finds (docs/limits.md).
    Clocks,
    /// Answers live for seconds, and are swept.
    Sweeps,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Crash(&'static str),
    Bounce(&'static str),
    Partition(&'static str, &'static str),
    Repair(&'static str, &'static str),
    Hold(&'static str, &'static str),
    Release(&'static str, &'static str),
    /// This gateway stands still, for longer than a lease.
    StandStill(usize, Duration),
    SetStoreClock(i64),
}

impl Plan {
    pub(crate) fn new(seed: u64, is_verbose: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kind = [Kind::Crashes, Kind::Crashes, Kind::Clocks, Kind::Sweeps][rng.usize(..4)];
        let (waits, wakes) = (rng.bool(), rng.bool());
        let mut faults = Vec::new();
        for _ in 0..rng.usize(3..9) {
            add_fault(kind, &mut rng, &mut faults);
        }
        faults.sort_by_key(|(at, _)| *at);
        Self { seed, is_verbose, kind, waits, wakes, faults }
    }

    /// Random numbers for one part of the run.
    pub(crate) fn rng(&self, part: u64) -> Rng {
        Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part))
    }

    pub(crate) fn ttl(&self) -> Duration {
        match self.kind {
            Kind::Sweeps => Duration::from_secs(12),
            Kind::Crashes | Kind::Clocks => Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// A fault and its end, both before [`FAULTS_END`].
fn add_fault(kind: Kind, rng: &mut Rng, faults: &mut Vec<(Duration, Fault)>) {
    let at = Duration::from_millis(rng.u64(200..FAULTS_END.as_millis() as u64 - 1_000));
    let end = (at + Duration::from_millis(rng.u64(100..9_000))).min(FAULTS_END);
    let gateway = ["g0", "g1"][rng.usize(..2)];
    let peer = ["store", "store", "service", "c0", "c1", "c2"][rng.usize(..6)];
    let (begins, ends) = match rng.u8(..10) {
        0..=1 if kind != Kind::Clocks => (Fault::Crash(gateway), Fault::Bounce(gateway)),
        0..=1 => {
            // Back by less than answers live: a node that was cut off meanwhile does not know that it happened.
            let hours = [-20, 48, 48][rng.usize(..3)];
            (Fault::SetStoreClock(hours * HOUR_MS), Fault::SetStoreClock(0))
        }
        2 => (Fault::Crash("service"), Fault::Bounce("service")),
        3..=4 => (Fault::Partition(gateway, peer), Fault::Repair(gateway, peer)),
        5..=6 => (Fault::Hold(gateway, peer), Fault::Release(gateway, peer)),
        7 if kind == Kind::Crashes => {
            let ms = rng.i64(-20_000..20_000);
            (Fault::SetStoreClock(ms), Fault::SetStoreClock(0))
        }
        _ => {
            let node = usize::from(gateway == "g1");
            let pause = LEASE + Duration::from_millis(rng.u64(500..9_000));
            faults.push((at, Fault::StandStill(node, pause.min(FAULTS_END - at))));
            return;
        }
    };
    faults.push((at, begins));
    faults.push((end, ends));
}

/// From then on nothing goes wrong any more.
pub(crate) const FAULTS_END: Duration = Duration::from_secs(20);
/// When the auditor asks: after every late copy has arrived, and what was left running has been reaped.
pub(crate) const AUDIT_AT: Duration = Duration::from_secs(48);
pub(crate) const LEASE: Duration = Duration::from_secs(2);
pub(crate) const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(3);
const HOUR_MS: i64 = 60 * 60 * 1_000;
