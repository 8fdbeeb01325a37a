//! The store's clock is set forward by a day while a fleet runs or before a sweep, and put right again.

use std::process::Output;
use std::time::Duration;

use proof::client::{Answer, Connection, post};
use servers::Postgres;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::gateway::Gateway;
use crate::upstream::{GATED, QUICK, Upstream};
use crate::{BODY, until, within};

const POLICY: &str = "lease = \"1s\"\nttl = \"1h\"";

/// The fleet forgets nothing, says so, and goes on as before when the clock is right again.
// threats B5, B6, B7, I10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_whose_postgres_jumps_ahead_by_a_day_forgets_nothing_and_recovers() {
    let clocked = Clocked::start();
    let pair = Pair::new(&clocked.url()).await;
    let fleet = [pair.start(0).await, pair.start(1).await];
    let first = post(fleet[0].address, QUICK, "kept", BODY).await.unwrap();
    let mut running = Connection::open(fleet[0].address).await.unwrap();
    let running = tokio::spawn(async move { running.post(GATED, "running", BODY).await });
    until("the execution", || !pair.upstream.executions("running").is_empty()).await;

    // One node sleeps over the jump, for longer than a lease.
    fleet[1].pause();
    clocked.set(Ahead::Day);
    ends_nothing(&fleet[..1], &first).await;
    fleet[1].resume();
    for _ in 0..3 {
        ends_nothing(&fleet, &first).await;
    }
    for gateway in &fleet {
        assert_eq!(gateway.metric("onlyonce_swept_total").await, 0);
        assert_eq!(gateway.metric("onlyonce_reaped_total").await, 0);
        assert!(gateway.metric("onlyonce_store_clock_ahead_seconds").await > 80_000);
        until("the gateway to say so", || gateway.errors().contains("too far ahead")).await;
    }
    clocked.set(Ahead::None);
    ends_nothing(&fleet, &first).await;
    for gateway in &fleet {
        until("the gateway to say so", || gateway.errors().contains("right again")).await;
        assert_eq!(gateway.metric("onlyonce_store_clock_ahead_seconds").await, 0);
    }
    pair.upstream.open_gate();
    assert_eq!(running.await.unwrap().unwrap().status, 201);
    assert_eq!(pair.upstream.executions("kept").len(), 1);
    assert_eq!(pair.upstream.executions("running").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_by_a_clock_that_jumped_ahead_is_refused_and_deletes_nothing() {
    let clocked = Clocked::start();
    let pair = Pair::new(&clocked.url()).await;
    let mut gateway = pair.start(0).await;
    post(gateway.address, QUICK, "kept", BODY).await.unwrap();
    gateway.terminate();
    gateway.ended().await;
    clocked.set(Ahead::Day);
    for target in [["--store", &*clocked.url()], ["--config", "onlyonce.toml"]] {
        let swept = pair.sweep(0, target).await;
        let told = String::from_utf8(swept.stderr).unwrap();
        assert_eq!(swept.status.code(), Some(3), "{told}");
        assert!(told.contains("the store's clock says 20") && told.contains("NTP"), "{told}");
    }
    clocked.set(Ahead::None);
    let swept = pair.sweep(0, ["--store", &*clocked.url()]).await;
    assert_eq!(swept.stdout, b"0 expired records deleted\n", "{swept:?}");
    let gateway = pair.start(0).await;
    assert!(post(gateway.address, QUICK, "kept", BODY).await.unwrap().is_replay());
    assert_eq!(pair.upstream.executions("kept").len(), 1);
}

/// A Postgres whose clock can be set.
struct Clocked {
    postgres: Postgres,
    database: String,
}

impl Clocked {
    fn start() -> Self {
        block_in_place(|| {
            let postgres = Postgres::start();
            let database = postgres.database();
            postgres.own_clock(&database);
            Self { postgres, database }
        })
    }

    fn url(&self) -> String {
        self.database.clone()
    }

    fn set(&self, ahead: Ahead) {
        let by = if ahead == Ahead::Day { "1 day" } else { "0" };
        block_in_place(|| self.postgres.set_clock(&self.database, by));
    }
}

/// How far the clock is ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    None,
    Day,
}

/// Two gateways of one store.
struct Pair {
    upstream: Upstream,
    top: String,
    folders: [TempDir; 2],
}

impl Pair {
    async fn new(store: &str) -> Self {
        let top = format!("store = \"{store}\"\nsweep = \"200ms\"");
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        Self { upstream: Upstream::start().await, top, folders }
    }

    async fn start(&self, which: usize) -> Gateway {
        let folder = self.folders[which].path();
        Gateway::with_top(folder, self.upstream.address, &self.top, POLICY).await
    }

    /// `onlyonce sweep` in the folder of a gateway.
    async fn sweep(&self, which: usize, target: [&str; 2]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.arg("sweep").args(target).current_dir(self.folders[which].path());
        within("the sweep", command.output()).await.unwrap()
    }
}

/// Some leases and sweeps pass meanwhile.
async fn ends_nothing(gateways: &[Gateway], first: &Answer) {
    for _ in 0..3 {
        for gateway in gateways {
            let again = post(gateway.address, QUICK, "kept", BODY).await.unwrap();
            assert!(again.is_replay(), "{again:?}");
            assert_eq!(again.body, first.body);
            let refused = post(gateway.address, GATED, "running", BODY).await.unwrap();
            assert_eq!(refused.problem().as_deref(), Some("idempotency_in_progress"));
        }
        sleep(Duration::from_millis(400)).await;
    }
}
