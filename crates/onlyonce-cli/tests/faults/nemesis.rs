//! What is done to the gateways and their servers. Each fault is a line of the history.

use std::time::Duration;

use onlyonce::CrashPoint;
use proof::history::now_ns;
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use crate::lab::{Lab, Plan};
use crate::{until, within};

impl Lab {
    /// The places that a gateway of this store can meet: a file has one owner, and nobody to reap it.
    pub(crate) fn points(&self) -> Vec<CrashPoint> {
        let is_met = |point: &CrashPoint| self.kind.is_fleet() || *point != CrashPoint::AfterReap;
        CrashPoint::ALL.iter().copied().filter(is_met).collect()
    }

    /// A gateway is started so that it dies at `point`, and starts again after it. If it does not come to that point, that is
    /// no fault.
    pub(crate) async fn kill_at(&mut self, point: CrashPoint) {
        let (one, other) = self.two_nodes();
        // What it must find there is left by the other one, which then is not there to find it first.
        let is_alone = matches!(point, CrashPoint::AfterReap | CrashPoint::AfterTakeover);
        self.moment().await;
        self.kill(one).await;
        if is_alone && one != other {
            self.kill(other).await;
        }
        for _ in 0..TRIES_MAX {
            self.start_again(one, Some(Plan { point, nth: nth(point), action: "kill" })).await;
            if timeout(POINT_WAIT, self.nodes[one].gateway.ended()).await.is_ok() {
                break;
            }
            // Nothing was left in the state that it must find; now something is.
            self.kill(one).await;
        }
        let node = &self.nodes[one];
        // A busy machine may not come there in time. Whoever needs the fault counts it.
        match node.met() {
            Some((name, at)) => {
                assert_eq!(name, point.name());
                self.fault(&format!("kill at {name}"), node.name, at);
            }
            None => println!("{point:?} was not met: {}", node.gateway.errors()),
        }
        self.start_again(one, None).await;
        if is_alone && one != other {
            self.start_again(other, None).await;
        }
    }

    /// A gateway is killed at any moment at which something is under way.
    pub(crate) async fn kill_at_random(&mut self) {
        let (one, _) = self.two_nodes();
        self.moment().await;
        self.kill(one).await;
        self.start_again(one, None).await;
    }

    /// A gateway stands still for longer than its lease, just at `point`; the other one gives it up, and it comes back.
    pub(crate) async fn pause_at(&mut self, point: CrashPoint) {
        let (one, other) = self.two_nodes();
        // In order, so that it leaves nothing to be given up.
        self.nodes[one].gateway.terminate();
        self.nodes[one].gateway.ended().await;
        self.start_again(one, Some(Plan { point, nth: nth(point), action: "stop" })).await;
        let reaped = self.reaped(other).await;
        let node = &self.nodes[one];
        until("the gateway to stand still", || node.met().is_some()).await;
        let (name, at) = node.met().unwrap();
        assert_eq!(name, point.name());
        within("its operations to lapse", async {
            while self.reaped(other).await == reaped {
                sleep(LOOK_EVERY).await;
            }
        })
        .await;
        self.nodes[one].gateway.resume();
        self.fault(&format!("pause at {name}"), self.nodes[one].name, at);
        self.fault("takeover", "line", at);
        self.works_again().await;
    }

    async fn reaped(&self, which: usize) -> usize {
        self.nodes[which].gateway.metric("onlyonce_reaped_total").await
    }

    /// The line of a gateway to Postgres is cut when Postgres says that a write is done.
    pub(crate) async fn cut(&mut self) {
        self.moment().await;
        let line = self.servers.line.as_ref().unwrap();
        let (from, made) = (now_ns(), line.made());
        line.cut();
        until("a cut", || line.made() > made).await;
        // Which operations were on that line is not known, so that none counts as hit.
        self.fault("cut", "line", from);
    }

    /// Postgres is killed, and recovers.
    pub(crate) async fn kill_postgres(&mut self) {
        self.moment().await;
        let from = now_ns();
        let postgres = self.servers.postgres.as_mut().unwrap();
        block_in_place(|| {
            postgres.kill();
            postgres.start_again();
        });
        self.fault("postgres killed", "all", from);
        self.works_again().await;
        self.fault("postgres comes back", "line", from);
    }

    /// The primary dies, its standby takes over, and gets a standby of its own.
    pub(crate) async fn fail_over(&mut self) {
        self.moment().await;
        let from = now_ns();
        self.servers.fail_over();
        self.fault("failover", "all", from);
        self.works_again().await;
        self.fault("postgres comes back", "line", from);
        self.servers.add_standby().await;
    }

    /// The primary dies, Patroni promotes its standby, and the dead one comes back to stand by.
    pub(crate) async fn fail_over_by_patroni(&mut self) {
        self.moment().await;
        let from = now_ns();
        self.servers.fail_over_by_patroni();
        self.fault("failover by patroni", "all", from);
        self.works_again().await;
        self.fault("postgres comes back", "line", from);
        block_in_place(|| self.servers.patroni.as_mut().unwrap().start_again());
    }

    pub(crate) async fn flush_redis(&mut self) {
        self.moment().await;
        let from = now_ns();
        block_in_place(|| self.servers.redis.as_ref().unwrap().command("FLUSHALL"));
        self.fault("redis flushed", "all", from);
    }

    pub(crate) async fn pause_redis(&mut self) {
        self.moment().await;
        let from = now_ns();
        let redis = self.servers.redis.as_ref().unwrap();
        redis.pause();
        self.works_again().await;
        redis.resume();
        self.fault("redis paused", "all", from);
    }

    pub(crate) async fn kill_redis(&mut self) {
        self.moment().await;
        let from = now_ns();
        let redis = self.servers.redis.as_mut().unwrap();
        block_in_place(|| redis.kill());
        self.works_again().await;
        block_in_place(|| self.servers.redis.as_mut().unwrap().start_again());
        self.fault("redis killed", "all", from);
    }

    /// One of them at random, and the other, which is the same if there is only one.
    fn two_nodes(&self) -> (usize, usize) {
        let one = fastrand::usize(..self.nodes.len());
        (one, self.nodes.len() - 1 - one)
    }

    async fn kill(&mut self, which: usize) {
        let from = now_ns();
        self.nodes[which].gateway.kill().await;
        self.fault("kill at random", self.nodes[which].name, from);
    }

    async fn start_again(&mut self, which: usize, plan: Option<Plan>) {
        self.nodes[which].start(plan).await;
    }

    fn fault(&self, what: &str, on: &str, from: u64) {
        self.clients.history.note(json!({"kind": "fault", "what": what, "on": on, "from": from}));
    }

    /// A random moment, and then one at which something is under way.
    async fn moment(&self) {
        sleep(Duration::from_millis(fastrand::u64(10..80))).await;
        until("load", || self.clients.in_flight() >= IN_FLIGHT_MIN).await;
    }

    /// Until operations complete again.
    async fn works_again(&self) {
        let before = self.clients.completed();
        until("operations to complete again", || self.clients.completed() > before + 5).await;
    }
}

/// At the how many-th time: at any for what each request meets, and early for what is rare.
fn nth(point: CrashPoint) -> u32 {
    match point {
        CrashPoint::AfterTakeover | CrashPoint::AfterReap | CrashPoint::InRenewal => 1,
        CrashPoint::InReap | CrashPoint::InSweep => fastrand::u32(3..6),
        _ => fastrand::u32(2..30),
    }
}

/// How many requests a fault must find under way.
const IN_FLIGHT_MIN: usize = 5;
/// How long a gateway may take to meet a place.
const POINT_WAIT: Duration = Duration::from_secs(8);
/// How often it is tried.
const TRIES_MAX: usize = 5;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A fault of a soak.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    KillAt(CrashPoint),
    KillAtRandom,
    PauseAt(CrashPoint),
    Cut,
    KillPostgres,
    FlushRedis,
    PauseRedis,
    KillRedis,
}

impl Fault {
    /// Any that this store can have; kills most of all.
    pub(crate) fn any(lab: &Lab) -> Self {
        let points = lab.points();
        let point = points[fastrand::usize(..points.len())];
        let has_redis = lab.servers.redis.is_some();
        match fastrand::u8(..100) {
            0..8 if lab.kind.is_fleet() => Self::PauseAt(PAUSES[fastrand::usize(..PAUSES.len())]),
            8..24 if lab.kind.is_fleet() => Self::Cut,
            24..27 if lab.kind.is_fleet() => Self::KillPostgres,
            27..31 if has_redis => Self::FlushRedis,
            31..34 if has_redis => Self::PauseRedis,
            34..37 if has_redis => Self::KillRedis,
            37..67 => Self::KillAt(point),
            _ => Self::KillAtRandom,
        }
    }
}

impl Lab {
    pub(crate) async fn inflict(&mut self, fault: Fault) {
        match fault {
            Fault::KillAt(point) => self.kill_at(point).await,
            Fault::KillAtRandom => self.kill_at_random().await,
            Fault::PauseAt(point) => self.pause_at(point).await,
            Fault::Cut => self.cut().await,
            Fault::KillPostgres => self.kill_postgres().await,
            Fault::FlushRedis => self.flush_redis().await,
            Fault::PauseRedis => self.pause_redis().await,
            Fault::KillRedis => self.kill_redis().await,
        }
    }
}

/// Where a gateway stands still: before it sends, while it waits, before it stores, while it stores.
pub(crate) const PAUSES: [CrashPoint; 4] = [
    CrashPoint::AfterClaim,
    CrashPoint::AfterDispatch,
    CrashPoint::AfterUpstream,
    CrashPoint::SettleSent,
];
