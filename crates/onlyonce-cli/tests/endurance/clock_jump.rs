//! The store's clock is set forward by a day: nothing lapses, expires or is swept, until someone confirms it.

use std::process::Output;
use std::time::Duration;

use proof::client::{Answer, Connection, post};
use servers::{Postgres, Redis};
use tokio::process::Command;
use tokio::task::block_in_place;
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
    let (postgres, database) = block_in_place(|| {
        let postgres = Postgres::start();
        let database = postgres.database();
        postgres.sql(&database, CLOCK);
        (postgres, database)
    });
    let store = format!("{database}?options=-csearch_path%3Djump,pg_catalog,public");
    let sql = |text: &str| block_in_place(|| postgres.sql(&database, text));
    let jump = || drop(sql("UPDATE jump.ahead SET by = '1 day'"));
    a_jump_ends_nothing(&store, jump, || sql("SELECT clock_held FROM onlyonce.meta") == "t").await;
}

// threats B5, B6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_of_the_clock_of_redis_ends_nothing_until_it_is_confirmed() {
    let redis = block_in_place(|| Redis::start_with_clock(&[]));
    let held = "EVAL \"return tonumber(redis.call('GETRANGE', 'oo:{1023}:clock', 0, 0))\" 0";
    let is_told = || block_in_place(|| redis.command(held) == ":1");
    a_jump_ends_nothing(&redis.url(), || redis.set_clock_ahead(86_400), is_told).await;
}

/// One node lives through it, and sleeps until another has started, which nobody has told.
async fn a_jump_ends_nothing(store: &str, jump: impl FnOnce(), is_told: impl Fn() -> bool) {
    let top = format!("store = \"{store}\"\nsweep = \"200ms\"");
    let upstream = Upstream::start().await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let early = Gateway::with_top(folders[0].path(), upstream.address, &top, POLICY).await;
    let first = post(early.address, QUICK, "kept", BODY).await.unwrap();
    let mut running = Connection::open(early.address).await.unwrap();
    let running = tokio::spawn(async move { running.post(GATED, "running", BODY).await });
    until("the execution", || !upstream.executions("running").is_empty()).await;

    early.pause();
    jump();
    let late = Gateway::with_top(folders[1].path(), upstream.address, &top, POLICY).await;
    assert!(!is_told(), "nobody knows yet");
    ends_nothing(&[&late], &first).await;
    assert!(!is_told(), "still nobody knows");
    early.resume();
    until("the jump to be told", &is_told).await;
    ends_nothing(&[&early, &late], &first).await;
    assert_eq!(late.metric("onlyonce_reaped_total").await, 0);
    assert_eq!(
        early.metric("onlyonce_swept_total").await + late.metric("onlyonce_swept_total").await,
        0
    );
    upstream.open_gate();
    assert_eq!(running.await.unwrap().unwrap().status, 201);

    let held = sweep(store, &[]).await;
    assert!(!held.status.success(), "{held:?}");
    let said = String::from_utf8_lossy(&held.stderr);
    assert!(said.contains("is held") && said.contains("sweep --confirm-clock"), "{said}");
    let swept = sweep(store, &["--confirm-clock"]).await;
    assert!(swept.status.success(), "{swept:?}");
    within("the key to be new again", async {
        while post(late.address, QUICK, "kept", BODY).await.unwrap().is_replay() {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(upstream.executions("kept").len(), 2);
    assert_eq!(upstream.executions("running").len(), 1);
}

/// Several leases and sweeps pass meanwhile.
async fn ends_nothing(gateways: &[&Gateway], first: &Answer) {
    for _ in 0..10 {
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

async fn sweep(store: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(["sweep", "--store", store]).args(args).output().await.unwrap()
}
