//! A gateway, a plain proxy and their upstream; and the judgement of what honest traffic suffers.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use proof::tier::tiered;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::gateway::Gateway;
use crate::upstream::Upstream;
use crate::{honest, plain};

pub(crate) struct Lab {
    pub(crate) upstream: Upstream,
    pub(crate) gateway: Gateway,
    plain: SocketAddr,
    _folder: TempDir,
}

impl Lab {
    /// With these lines under `[policy]`.
    pub(crate) async fn start(policy: &str) -> Self {
        open_files_max();
        let folder = tempfile::tempdir().unwrap();
        let upstream = Upstream::start();
        let gateway = Gateway::with_policy(folder.path(), upstream.address, policy).await;
        let plain = plain::start(upstream.address);
        Self { upstream, gateway, plain, _folder: folder }
    }

    /// Honest traffic flows under `attack`: its p99 is at most 3 times that of an idle gateway, or at most
    /// 1.5 times that of a plain proxy under the same attack. Best of three, of those that count: where already the idle
    /// gateway is slow, the machine has other work.
    pub(crate) async fn endures(&self, attack: impl Fn(SocketAddr) -> JoinSet<()>) {
        let mut suffers = false;
        for round in 1..=ROUNDS {
            let idle = honest::p99(self.gateway.address).await;
            let attacked = self.p99_under(&attack, self.gateway.address).await;
            let plain = self.p99_under(&attack, self.plain).await;
            println!(
                "round {round}: p99 {idle:.1?} idle, {attacked:.1?} attacked ({:.1} x), plain proxy attacked {plain:.1?} ({:.1} x)",
                attacked.div_duration_f64(idle),
                attacked.div_duration_f64(plain)
            );
            if attacked <= idle * 3 || attacked * 2 <= plain * 3 {
                return self.demand_memory_bounded();
            }
            suffers |= idle <= IDLE_MAX;
        }
        // A ratio of times is a verdict only where the machine is ours: in the full tier, and quiet.
        assert!(!suffers || tiered(10) < 10, "honest traffic suffers");
        self.demand_memory_bounded();
    }

    pub(crate) fn demand_memory_bounded(&self) {
        let memory_kib = self.gateway.memory_kib_max();
        println!("{} MiB resident at most", memory_kib / 1024);
        assert!(memory_kib < MEMORY_KIB_MAX, "{memory_kib} KiB");
    }

    async fn p99_under(
        &self,
        attack: impl Fn(SocketAddr) -> JoinSet<()>,
        at: SocketAddr,
    ) -> Duration {
        let mut attackers = attack(at);
        tokio::time::sleep(UNDER_WAY).await;
        let p99 = honest::p99(at).await;
        // An attacker ends by itself only if it saw what it must not see.
        if let Some(Err(error)) = attackers.try_join_next() {
            panic!("{error}");
        }
        attackers.shutdown().await;
        p99
    }
}

/// As many open files as the system allows: every attacker is a socket or two.
pub(crate) fn open_files_max() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// Serves on a free port, on a thread of its own, for as long as the process lives.
pub(crate) fn on_thread<F: Future<Output = ()>>(
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { serve(TcpListener::from_std(listener).unwrap()).await });
    });
    address
}

const ROUNDS: usize = 3;
/// Longer than the p99 of an idle gateway, built without optimisation, on a machine that does nothing else.
const IDLE_MAX: Duration = Duration::from_millis(20);
const MEMORY_KIB_MAX: usize = 256 * 1024;
/// All of an attack's connections are open by then, with a gateway that is built without optimisation too.
const UNDER_WAY: Duration = Duration::from_secs(2);
