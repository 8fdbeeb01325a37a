//! The server's clock, set for real.

use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::policy::Policy;
use onlyonce::scope::Principal;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::{Draft, Lease, Store};
use onlyonce::{Limits, Once, Operation, Outcome};
use servers::Postgres;

use crate::lab::{draft, open, session, until, won};

/// A server whose clock can be set.
pub(crate) struct Clocked {
    postgres: Postgres,
    pub(crate) url: String,
}

impl Clocked {
    pub(crate) fn start() -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        postgres.own_clock(&url);
        Self { postgres, url }
    }

    pub(crate) async fn open(&self) -> PostgresStore {
        open(&self.url).await
    }

    pub(crate) fn shift(&self, by: &str) {
        self.postgres.set_clock(&self.url, by);
    }

    /// A node that keeps answers for an hour, has short leases, and sweeps all the time.
    async fn node(&self) -> Once {
        let limits = Limits::default().with_sweep(Duration::from_millis(20), 100);
        Once::builder(self.open().await).with_limits(limits).build()
    }
}

/// Runs the operation of that key; whether it was executed now.
async fn is_fresh(once: &Once, key: &str) -> bool {
    let policy = Policy::default().with_ttl(Duration::from_secs(3_600)).with_lease(LEASE);
    let operation = Operation::new("charges", Principal::of("caller", b"one"), key).unwrap();
    let ran = once.run(operation.with_policy(policy), |_| async { Ok(()) }).await.unwrap();
    match ran {
        Outcome::Fresh(()) => true,
        Outcome::Replayed(()) => false,
        other => panic!("{other:?}"),
    }
}

/// A fleet that runs does not follow the clock.
// R113, threats B5, B6, I10
#[tokio::test]
async fn a_running_fleet_whose_server_jumps_ahead_by_a_day_forgets_nothing() {
    let clocked = Clocked::start();
    let fleet = [clocked.node().await, clocked.node().await];
    for once in &fleet {
        is_fresh(once, "kept").await;
    }
    clocked.shift("1 day");
    for (number, once) in fleet.iter().enumerate() {
        assert!(!is_fresh(once, "kept").await);
        assert!(is_fresh(once, &format!("new {number}")).await, "new keys are served");
        assert!(once.clock_ahead_by() > Duration::from_secs(80_000));
    }
    // Long enough for many sweeps and for leases to end.
    let end = SystemClock.boot() + 3 * LEASE;
    while SystemClock.boot() < end {
        assert!(!is_fresh(&fleet[0], "kept").await);
        tokio::time::sleep(LEASE / 10).await;
    }
    assert_eq!(fleet.each_ref().map(|once| once.counts().swept), [0, 0]);
}

// threat B7
#[tokio::test]
async fn a_fleet_whose_server_jumps_back_recovers() {
    let clocked = Clocked::start();
    clocked.shift("1 day");
    let once = clocked.node().await;
    let dead = Draft { lease: Lease::new(LEASE), ..draft(1) };
    won(&clocked.open().await, &dead).await;
    assert!(is_fresh(&once, "before").await);
    clocked.shift("0");
    assert!(is_fresh(&once, "after").await);
    assert!(!is_fresh(&once, "before").await);
    let reaped = format!("SELECT state = 2 FROM onlyonce.record WHERE id = '{}'", dead.id);
    until(&session(&clocked.url).await, &reaped).await;
    assert_eq!(once.clock_ahead_by(), Duration::ZERO);
}

/// Its hour was stamped by a clock that was a day behind.
// threats B6, B7
#[tokio::test]
async fn a_key_that_was_completed_while_the_clock_was_behind_is_kept_when_it_is_put_right() {
    let clocked = Clocked::start();
    let once = clocked.node().await;
    assert!(is_fresh(&once, "before").await);
    clocked.shift("-1 day");
    assert!(is_fresh(&once, "meanwhile").await);
    clocked.shift("0");
    for _ in 0..10 {
        assert!(!is_fresh(&once, "meanwhile").await);
        assert!(!is_fresh(&once, "before").await);
        tokio::time::sleep(LEASE / 10).await;
    }
    assert_eq!(once.counts().swept, 0);
    assert!(once.clock_ahead_by() > Duration::from_secs(80_000));
}

/// The clock stands still at that moment.
#[tokio::test]
async fn a_claim_at_its_not_after_is_in_time_and_one_after_it_is_not() {
    let clocked = Clocked::start();
    let still = "CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
                   AS 'SELECT timestamptz ''2035-01-01'' + by FROM clock.ahead'";
    clocked.postgres.sql(&clocked.url, still);
    let store = clocked.open().await;
    let not_after = store.load(draft(1).id).await.unwrap().now;
    won(&store, &Draft { not_after, ..draft(1) }).await;
    clocked.shift("1 millisecond");
    let late = store.claim(Draft { not_after, ..draft(2) }).await.unwrap();
    assert!(!late.mine && late.record.is_none());
}

const LEASE: Duration = Duration::from_millis(300);
