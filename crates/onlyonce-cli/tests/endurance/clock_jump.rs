//! Postgres's clock is set forward by a day: nothing lapses, expires or is swept, until someone confirms it.

use std::process::Output;
use std::time::Duration;

use proof::client::{Connection, post};
use servers::Postgres;
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
async fn a_jump_of_the_clock_ends_nothing_until_it_is_confirmed() {
    let (postgres, database) = block_in_place(|| {
        let postgres = Postgres::start();
        let database = postgres.database();
        postgres.sql(&database, CLOCK);
        (postgres, database)
    });
    let store = format!("{database}?options=-csearch_path%3Djump,pg_catalog,public");
    let top = format!("store = \"{store}\"\nsweep = \"200ms\"");
    let upstream = Upstream::start().await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let early = Gateway::with_top(folders[0].path(), upstream.address, &top, POLICY).await;
    let first = post(early.address, QUICK, "kept", BODY).await.unwrap();
    let mut running = Connection::open(early.address).await.unwrap();
    let running = tokio::spawn(async move { running.post(GATED, "running", BODY).await });
    until("the execution", || !upstream.executions("running").is_empty()).await;

    block_in_place(|| postgres.sql(&database, "UPDATE jump.ahead SET by = '1 day'"));
    // The node that lived through it tells the others.
    let is_told = || block_in_place(|| postgres.sql(&database, HELD)) == "t";
    until("the jump to be told", is_told).await;
    let late = Gateway::with_top(folders[1].path(), upstream.address, &top, POLICY).await;
    for _ in 0..10 {
        for gateway in [&early, &late] {
            let again = post(gateway.address, QUICK, "kept", BODY).await.unwrap();
            assert!(again.is_replay(), "{again:?}");
            assert_eq!(again.body, first.body);
            let refused = post(gateway.address, GATED, "running", BODY).await.unwrap();
            assert_eq!(refused.problem().as_deref(), Some("idempotency_in_progress"));
        }
        // Several leases and sweeps pass meanwhile.
        sleep(Duration::from_millis(400)).await;
    }
    assert_eq!(late.metric("onlyonce_reaped_total").await, 0);
    assert_eq!(
        early.metric("onlyonce_swept_total").await + late.metric("onlyonce_swept_total").await,
        0
    );
    upstream.open_gate();
    assert_eq!(running.await.unwrap().unwrap().status, 201);

    let swept = sweep(&store, &["--confirm-clock"]).await;
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

const HELD: &str = "SELECT clock_held FROM onlyonce.meta";

async fn sweep(store: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(["sweep", "--store", store]).args(args).output().await.unwrap()
}
