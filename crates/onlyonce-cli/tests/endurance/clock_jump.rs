//! The store's clock is set forward by a day: nothing lapses, expires or is swept, until someone confirms it.

use std::net::SocketAddr;
use std::process::Output;
use std::time::Duration;

use proof::client::{Answer, Connection, post};
use servers::{Postgres, Redis};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::gateway::Gateway;
use crate::upstream::{GATED, QUICK, Upstream};
use crate::{BODY, until, within};

/// A clock of the test's own, which stands before the real one in the gateway's search path.
const CLOCK: &str = "
    CREATE SCHEMA jump;
    CREATE TABLE jump.ahead (by interval NOT NULL);
    INSERT INTO jump.ahead VALUES ('0');
    CREATE FUNCTION jump.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
        'SELECT pg_catalog.clock_timestamp() + by FROM jump.ahead';";

const POLICY: &str = "lease = \"1s\"\nttl = \"1h\"";

// threats B5, B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_of_the_clock_of_postgres_ends_nothing_until_it_is_confirmed() {
    let clocked = Clocked::start();
    let jump = || clocked.set(Ahead::Day);
    a_jump_ends_nothing(&clocked.url(), jump, || clocked.is_told()).await;
}

// threats B5, B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_of_the_clock_of_redis_ends_nothing_until_it_is_confirmed() {
    let redis = block_in_place(|| Redis::start_with_clock(&[]));
    a_jump_ends_nothing(&redis.url(), || set(&redis, Ahead::Day), || is_told(&redis)).await;
}

// threat B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_of_postgres_that_was_confirmed_is_not_held_again() {
    let clocked = Clocked::start();
    a_confirmation_lasts(&clocked.url(), |ahead| clocked.set(ahead), || clocked.is_told()).await;
}

// threat B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_of_redis_that_was_confirmed_is_not_held_again() {
    let redis = block_in_place(|| Redis::start_with_clock(&[]));
    a_confirmation_lasts(&redis.url(), |ahead| set(&redis, ahead), || is_told(&redis)).await;
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
            postgres.sql(&database, CLOCK);
            Self { postgres, database }
        })
    }

    fn url(&self) -> String {
        format!("{}?options=-csearch_path%3Djump,pg_catalog,public", self.database)
    }

    fn sql(&self, text: &str) -> String {
        block_in_place(|| self.postgres.sql(&self.database, text))
    }

    fn set(&self, ahead: Ahead) {
        let by = if ahead == Ahead::Day { "1 day" } else { "0" };
        self.sql(&format!("UPDATE jump.ahead SET by = '{by}'"));
    }

    fn is_told(&self) -> bool {
        self.sql("SELECT clock_held FROM onlyonce.meta") == "t"
    }
}

fn set(redis: &Redis, ahead: Ahead) {
    redis.set_clock_ahead(if ahead == Ahead::Day { 86_400 } else { 0 });
}

/// Whether the last slot was told.
fn is_told(redis: &Redis) -> bool {
    let held = "EVAL \"return tonumber(redis.call('GETRANGE', 'oo:{1023}:clock', 0, 0))\" 0";
    block_in_place(|| redis.command(held) == ":1")
}

/// One node lives through it, and sleeps until another has started, which nobody has told.
async fn a_jump_ends_nothing(store: &str, jump: impl FnOnce(), is_told: impl Fn() -> bool) {
    let pair = Pair::new(store).await;
    let early = pair.start(0).await;
    let first = post(early.address, QUICK, "kept", BODY).await.unwrap();
    let mut running = Connection::open(early.address).await.unwrap();
    let running = tokio::spawn(async move { running.post(GATED, "running", BODY).await });
    until("the execution", || !pair.upstream.executions("running").is_empty()).await;

    early.pause();
    jump();
    let late = pair.start(1).await;
    assert!(!is_told(), "nobody knows yet");
    ends_nothing(&[&late], &first).await;
    assert!(!is_told(), "still nobody knows");
    early.resume();
    until("the jump to be told", &is_told).await;
    for _ in 0..5 {
        ends_nothing(&[&early, &late], &first).await;
    }
    assert_eq!(late.metric("onlyonce_reaped_total").await, 0);
    for gateway in [&early, &late] {
        assert_eq!(gateway.metric("onlyonce_swept_total").await, 0);
        assert_eq!(gateway.metric("onlyonce_clock_held").await, 1);
    }
    pair.upstream.open_gate();
    assert_eq!(running.await.unwrap().unwrap().status, 201);

    let held = sweep(store, &[]).await;
    assert!(!held.status.success(), "{held:?}");
    let said = String::from_utf8_lossy(&held.stderr);
    assert!(said.contains("is held") && said.contains("sweep --confirm-clock"), "{said}");
    until("everyone to say so", || {
        [&early, &late].iter().all(|it| it.errors().contains("is held"))
    })
    .await;
    confirm(store).await;
    within("the key to be new again", async {
        while post(late.address, QUICK, "kept", BODY).await.unwrap().is_replay() {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(pair.upstream.executions("kept").len(), 2);
    assert_eq!(pair.upstream.executions("running").len(), 1);
    until("it to be trusted", || early.errors().contains("trusted again")).await;
}

/// One node sleeps over the jump and the word that it was none; another reads while that word is given.
async fn a_confirmation_lasts(store: &str, set: impl Fn(Ahead), is_told: impl Fn() -> bool) {
    let pair = Pair::new(store).await;
    let (asleep, awake) = (pair.start(0).await, pair.start(1).await);
    for gateway in [&asleep, &awake] {
        post(gateway.address, QUICK, "kept", BODY).await.unwrap();
    }
    asleep.pause();
    set(Ahead::Day);
    until("the jump to be told", &is_told).await;
    // Put right before the word is given, and a day ahead again after it.
    for ahead in [Ahead::None, Ahead::Day] {
        let readers = readers(awake.address);
        set(ahead);
        confirm(store).await;
        stays_trusted(&[&awake], &is_told).await;
        drop(readers);
        if ahead == Ahead::None {
            set(Ahead::Day);
            until("the jump to be told", &is_told).await;
        }
    }
    asleep.resume();
    stays_trusted(&[&asleep, &awake], &is_told).await;
}

/// How far the clock is ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    None,
    Day,
}

/// Callers who read while they live.
fn readers(gateway: SocketAddr) -> JoinSet<()> {
    let mut readers = JoinSet::new();
    for reader in 0..8 {
        readers.spawn(async move {
            for n in 0..u32::MAX {
                let key = format!("read-{reader}-{n}");
                post(gateway, QUICK, &key, BODY).await.unwrap();
            }
        });
    }
    readers
}

/// Over several leases, and so several looks of everyone.
async fn stays_trusted(gateways: &[&Gateway], is_told: impl Fn() -> bool) {
    for n in 0..20 {
        for gateway in gateways {
            post(gateway.address, QUICK, &format!("trusted-{n}"), BODY).await.unwrap();
        }
        assert!(!is_told(), "someone holds it again");
        sleep(Duration::from_millis(100)).await;
    }
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
}

/// Some leases and sweeps pass meanwhile.
async fn ends_nothing(gateways: &[&Gateway], first: &Answer) {
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

async fn confirm(store: &str) {
    let swept = sweep(store, &["--confirm-clock"]).await;
    assert!(swept.status.success(), "{swept:?}");
}

async fn sweep(store: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(["sweep", "--store", store]).args(args).output().await.unwrap()
}
