//! What one run knows: its seed, its time, its trace, and what its hosts have told of themselves.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce::Once;
use onlyonce::clock::{Clock, StoreTime};

use crate::flaws::Flaw;
use crate::met::Met;
use crate::plan::Plan;

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) flaw: Flaw,
    /// The latest time that a host has read, in nanoseconds since the run began.
    now_ns: AtomicU64,
    /// By how much someone has set the store's clock, in milliseconds.
    pub(crate) store_clock_ms: AtomicI64,
    /// Whether the store still loses, delays and doubles, and the service still fails.
    pub(crate) faults_on: AtomicBool,
    pub(crate) nodes: [Node; 2],
    told: Mutex<Told>,
}

/// One gateway, over all of its lives.
#[derive(Default)]
pub(crate) struct Node {
    /// Until when it stands still, in nanoseconds since the run began.
    stands_until_ns: AtomicU64,
    has_read_the_clock: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Told {
    hash: DefaultHasher,
    lines: Vec<String>,
    pub(crate) executions: Vec<Execution>,
    pub(crate) answers: Vec<Answer>,
    /// The engines of all lives of the gateways, for their counts.
    pub(crate) engines: Vec<Once>,
    pub(crate) met: Met,
}

/// One effect at the service.
#[derive(Clone, Debug)]
pub(crate) struct Execution {
    pub(crate) at: Duration,
    pub(crate) request: Asked,
    pub(crate) n: usize,
}

/// What a request is about: by this an answer must be the right one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    pub(crate) path: &'static str,
    pub(crate) principal: String,
    pub(crate) key: String,
    pub(crate) body: String,
}

/// What a client got.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) at: Duration,
    pub(crate) asked: Asked,
    pub(crate) status: u16,
    pub(crate) body: String,
    /// Asked by the auditor, after all faults had stopped.
    pub(crate) is_final: bool,
}

impl World {
    pub(crate) fn new(plan: Plan, flaw: Flaw) -> Arc<Self> {
        Arc::new(Self {
            plan,
            flaw,
            now_ns: AtomicU64::new(0),
            store_clock_ms: AtomicI64::new(0),
            faults_on: AtomicBool::new(true),
            nodes: Default::default(),
            told: Mutex::default(),
        })
    }

    /// The time since the run began, the same for all hosts.
    pub(crate) fn now(&self) -> Duration {
        let read = turmoil::sim_elapsed().map_or(0, as_ns);
        let before = self.now_ns.fetch_max(read, Ordering::Relaxed);
        Duration::from_nanos(before.max(read))
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event to the trace, by which two runs of a seed are compared.
    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        let (now, line) = (self.now(), line());
        let mut told = self.told();
        (now, &line).hash(&mut told.hash);
        if self.plan.is_verbose {
            told.lines.push(format!("{:>9.3}  {line}", now.as_secs_f64()));
        }
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.told().hash.finish()
    }

    pub(crate) fn lines(&self) -> String {
        self.told().lines.join("\n")
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Met)) {
        count(&mut self.told().met);
    }

    pub(crate) fn has_faults(&self) -> bool {
        self.faults_on.load(Ordering::Relaxed)
    }

    /// The gateway stands still for so long, from now on.
    pub(crate) fn stand_still(&self, node: usize, now: Duration, pause: Duration) {
        self.nodes[node].stands_until_ns.store(as_ns(now + pause), Ordering::Relaxed);
    }

    /// How long the gateway still stands still.
    pub(crate) fn stands_for(&self, node: usize) -> Option<Duration> {
        let until = Duration::from_nanos(self.nodes[node].stands_until_ns.load(Ordering::Relaxed));
        until.checked_sub(self.now()).filter(|left| !left.is_zero())
    }

    /// Returns once the gateway runs: at once, unless it stands still.
    pub(crate) async fn runs(&self, node: usize) {
        while let Some(left) = self.stands_for(node) {
            tokio::time::sleep(left).await;
        }
    }

    /// The gateway has an answer of the store, and with it the time.
    pub(crate) fn read_the_clock(&self, node: usize) {
        self.nodes[node].has_read_the_clock.store(true, Ordering::Relaxed);
    }

    pub(crate) fn all_read_the_clock(&self) -> bool {
        self.nodes.iter().all(|node| node.has_read_the_clock.load(Ordering::Relaxed))
    }

    /// What the store's clock says.
    pub(crate) fn store_now(&self) -> StoreTime {
        EPOCH.plus(self.now()).plus_ms(self.store_clock_ms.load(Ordering::Relaxed))
    }
}

/// The clocks of a gateway: the boot clock is the run's, the wall clock is off by a little.
pub(crate) struct NodeClock {
    pub(crate) world: Arc<World>,
    pub(crate) wall_off_ms: i64,
}

impl Clock for NodeClock {
    fn wall(&self) -> StoreTime {
        EPOCH.plus(self.world.now()).plus_ms(self.wall_off_ms)
    }

    fn boot(&self) -> Duration {
        BOOTED_BEFORE + self.world.now()
    }
}

fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Every address of a host.
pub(crate) const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const EPOCH: StoreTime = StoreTime::from_ms(1_780_000_000_000);
const BOOTED_BEFORE: Duration = Duration::from_secs(3_600);
