//! The server's clock, set for real: a schema before `pg_catalog` has a `clock_timestamp()` of its own.

use std::time::Duration;

use onlyonce::store::conformance::ManualClock;
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::{Draft, Maintain, Store, Swept};
use servers::Postgres;
use tokio::time::timeout;

use crate::lab::{completed, draft, open, open_with, session, until, until_blocked, won};

/// A server whose clock can be set.
pub(crate) struct Clocked {
    postgres: Postgres,
    pub(crate) url: String,
}

impl Clocked {
    pub(crate) fn start() -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        postgres.sql(
            &url,
            "CREATE SCHEMA fake; CREATE TABLE fake.shift (by interval); INSERT INTO fake.shift VALUES ('0');
             CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
               AS 'SELECT pg_catalog.clock_timestamp() + by FROM fake.shift'",
        );
        Self { postgres, url }
    }

    fn url(&self) -> String {
        format!("{}?options=-csearch_path%3Dfake,pg_catalog", self.url)
    }

    pub(crate) async fn open(&self) -> PostgresStore {
        open(&self.url()).await
    }

    pub(crate) fn shift(&self, by: &str) {
        self.postgres.sql(&self.url, &format!("UPDATE fake.shift SET by = '{by}'"));
    }

    fn forbid_to_tell(&self) {
        self.postgres.sql(
            &self.url,
            "CREATE FUNCTION fake.forbid() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN RAISE EXCEPTION 'nobody is told'; END $$;
             CREATE TRIGGER forbids BEFORE UPDATE ON onlyonce.meta FOR EACH ROW
               WHEN (NEW.clock_held) EXECUTE FUNCTION fake.forbid()",
        );
    }

    /// Until the next beat of some node has ended.
    pub(crate) async fn until_beat(&self) {
        let version = || self.postgres.sql(&self.url, "SELECT xmin FROM onlyonce.meta");
        let before = version();
        let beat = async {
            while version() == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(15), beat).await.expect("it beats");
    }

    fn flag(&self) -> String {
        self.postgres.sql(&self.url, "SELECT clock_held FROM onlyonce.meta")
    }
}

/// Nothing expires or is swept, for those who saw the jump, those who did not, and one that starts later.
// R113, threat B8
#[tokio::test]
async fn after_a_jump_of_a_day_nothing_expires_until_someone_confirms_it() {
    let clocked = Clocked::start();
    let (saw, other) = (clocked.open().await, clocked.open().await);
    completed(&saw, &draft(1)).await;
    clocked.shift("1 day");
    let seen = saw.load(draft(1).id).await.unwrap();
    assert!(seen.clock_held, "it is noticed at once");
    assert!(seen.record.unwrap().is_expired(seen.now), "by the clock it would have expired");
    let told = async {
        while clocked.flag() != "t" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(5), told).await.expect("the others are told");
    let later = clocked.open().await;
    for store in [&saw, &other, &later] {
        assert!(store.load(draft(1).id).await.unwrap().clock_held);
        assert!(store.claim(draft(1)).await.unwrap().clock_held);
        assert_eq!(store.sweep(100).await.unwrap(), Swept { deleted: 0, more: false });
    }
    later.hold_clock(false).await.unwrap();
    for store in [&other, &saw, &later] {
        assert!(!store.load(draft(1).id).await.unwrap().clock_held, "confirmed for everyone");
    }
    assert_eq!(saw.sweep(100).await.unwrap(), Swept { deleted: 1, more: false });
}

/// Even if the sweep is the first to read the clock after the jump.
// threat B8
#[tokio::test]
async fn a_sweep_does_not_trust_a_clock_that_jumped() {
    let clocked = Clocked::start();
    let store = clocked.open().await;
    completed(&store, &draft(1)).await;
    assert_eq!(store.sweep(100).await.unwrap().deleted, 0);
    clocked.shift("1 day");
    assert_eq!(store.sweep(100).await.unwrap().deleted, 0);
    assert_eq!(store.sweep(100).await.unwrap().deleted, 0);
}

// threat B7
#[tokio::test]
async fn time_does_not_run_backward_when_the_clock_is_set_back() {
    let clocked = Clocked::start();
    let store = clocked.open().await;
    let before = store.load(draft(1).id).await.unwrap().now;
    clocked.shift("-1 hour");
    let seen = store.claim(draft(1)).await.unwrap();
    assert!(seen.now >= before && seen.record.unwrap().first_claimed_at >= before);
    // A node that starts later knows it from the last beat of this one.
    clocked
        .postgres
        .sql(&clocked.url, &format!("UPDATE onlyonce.meta SET highest = {}", before.as_ms()));
    let later = clocked.open().await;
    assert!(later.load(draft(1).id).await.unwrap().now >= before);
    // Until someone says that the clock is right.
    later.hold_clock(false).await.unwrap();
    for store in [&store, &later] {
        let now = store.load(draft(1).id).await.unwrap().now;
        assert!(now.since_ms(before) < -3_500_000, "{now:?}");
    }
}

/// The clock stands still at that moment.
#[tokio::test]
async fn a_claim_at_its_not_after_is_in_time_and_one_after_it_is_not() {
    let clocked = Clocked::start();
    let still = "CREATE OR REPLACE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
                   AS 'SELECT timestamptz ''2035-01-01'' + by FROM fake.shift'";
    clocked.postgres.sql(&clocked.url, still);
    let store = clocked.open().await;
    let not_after = store.load(draft(1).id).await.unwrap().now;
    won(&store, &Draft { not_after, ..draft(1) }).await;
    clocked.shift("1 millisecond");
    let late = store.claim(Draft { not_after, ..draft(2) }).await.unwrap();
    assert!(!late.mine && late.record.is_none());
}

/// The highest time is kept while nothing happens, for a node that starts after this one.
#[tokio::test]
async fn a_node_keeps_the_time_it_has_seen() {
    let clocked = Clocked::start();
    let store = clocked.open().await;
    let now = store.load(draft(1).id).await.unwrap().now.as_ms();
    let kept = async {
        let highest = "SELECT highest FROM onlyonce.meta";
        while clocked.postgres.sql(&clocked.url, highest).parse::<i64>().unwrap() < now {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(15), kept).await.expect("it is kept");
}

/// Nobody has told of the jump when it starts.
// threat B6
#[tokio::test]
async fn a_node_that_starts_right_after_a_jump_lets_nothing_expire() {
    let clocked = Clocked::start();
    let first = clocked.open().await;
    completed(&first, &draft(1)).await;
    clocked.shift("1 day");
    let later = clocked.open().await;
    assert_eq!(later.sweep(100).await.unwrap(), Swept { deleted: 0, more: false });
    assert!(later.load(draft(1).id).await.unwrap().clock_held);
    let told = async {
        while clocked.flag() != "t" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(15), told).await.expect("the first tells before the later trusts");
}

/// A day without any node is no jump, once nobody says otherwise.
#[tokio::test]
async fn a_node_that_starts_after_a_day_of_rest_trusts_the_clock_after_a_while() {
    let clocked = Clocked::start();
    let first = clocked.open().await;
    completed(&first, &draft(1)).await;
    first.close().await;
    clocked.shift("1 day");
    let clock = ManualClock::new();
    let options = PostgresOptions::new().with_clock(clock.clone());
    let later = open_with(&clocked.url(), options).await;
    assert!(later.load(draft(1).id).await.unwrap().clock_held);
    clock.advance(Duration::from_secs(20));
    assert!(!later.load(draft(1).id).await.unwrap().clock_held);
    assert_eq!(later.sweep(100).await.unwrap(), Swept { deleted: 1, more: false });
    assert_eq!(clocked.flag(), "f", "nobody was told of a jump");
}

/// Or else the next one to start would find a beat that is not old.
// threat B6
#[tokio::test]
async fn a_node_that_doubts_the_clock_does_not_vouch_for_it() {
    let clocked = Clocked::start();
    completed(&clocked.open().await, &draft(1)).await;
    clocked.shift("1 day");
    let options = PostgresOptions::new().with_clock(ManualClock::new());
    let later = open_with(&clocked.url(), options.clone()).await;
    assert!(later.load(draft(1).id).await.unwrap().clock_held);
    clocked.until_beat().await;
    let last = open_with(&clocked.url(), options).await;
    assert!(last.load(draft(1).id).await.unwrap().clock_held);
    assert_eq!(clocked.flag(), "f", "nobody was told of a jump");
}

/// It began before someone trusted the clock again, and ends after that.
// threat B6
#[tokio::test]
async fn a_beat_does_not_bring_back_the_time_that_was_not_trusted() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let right = store.load(draft(1).id).await.unwrap().now.as_ms();
    let day = right + 86_400_000;
    postgres.sql(&url, &format!("UPDATE onlyonce.meta SET highest = {day}, clock_held = true"));
    let (confirms, watcher) = (session(&url).await, session(&url).await);
    let confirm = format!(
        "BEGIN; UPDATE onlyonce.meta SET highest = {right}, clock_held = false, confirmed = confirmed + 1"
    );
    confirms.batch_execute(&confirm).await.unwrap();
    until_blocked(&watcher).await;
    confirms.batch_execute("COMMIT").await.unwrap();
    let active = "FROM pg_stat_activity WHERE application_name = 'onlyonce' AND state = 'active'";
    until(&watcher, &format!("SELECT NOT EXISTS (SELECT {active})")).await;
    let seen = store.load(draft(1).id).await.unwrap();
    assert!(seen.now.as_ms() < day, "{seen:?}");
    assert!(!seen.clock_held);
}

/// It saw the jump, and could not tell before someone said that it was none.
// threat B6
#[tokio::test]
async fn what_could_not_be_told_before_the_clock_was_confirmed_is_not_told_after() {
    let clocked = Clocked::start();
    let store = clocked.open().await;
    store.load(draft(1).id).await.unwrap();
    clocked.forbid_to_tell();
    clocked.shift("1 day");
    assert!(store.load(draft(1).id).await.unwrap().clock_held);
    until_refused(&clocked).await;
    let confirm = "DROP TRIGGER forbids ON onlyonce.meta; UPDATE onlyonce.meta SET confirmed = confirmed + 1, \
        highest = floor(date_part('epoch', pg_catalog.clock_timestamp() + interval '1 day') * 1000)::bigint";
    clocked.postgres.sql(&clocked.url, &format!("BEGIN; {confirm}; COMMIT"));
    // It beats soon again, and so learns of it.
    clocked.until_beat().await;
    assert_eq!(clocked.flag(), "f");
    assert!(!store.load(draft(1).id).await.unwrap().clock_held);
}

// threat B6
#[tokio::test]
async fn a_node_that_cannot_tell_of_a_jump_does_everything_else() {
    let clocked = Clocked::start();
    let store = clocked.open().await;
    store.load(draft(1).id).await.unwrap();
    clocked.forbid_to_tell();
    clocked.shift("1 day");
    assert!(store.load(draft(1).id).await.unwrap().clock_held);
    until_refused(&clocked).await;
    let patience = Duration::from_secs(5);
    let swept = timeout(patience, store.sweep(100)).await.expect("it is answered");
    assert_eq!(swept.unwrap().deleted, 0);
    timeout(patience, store.close()).await.expect("it closes");
}

/// The server stood still with a beat before it, and then went on with it.
// threats B3, B6
#[tokio::test]
async fn a_server_that_stood_still_for_longer_than_a_minute_has_not_jumped() {
    let clocked = Clocked::start();
    clocked.postgres.sql(
        &clocked.url,
        "CREATE OR REPLACE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE plpgsql AS
           $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1);
              RETURN pg_catalog.clock_timestamp() + (SELECT by FROM fake.shift); END $$",
    );
    let clock = ManualClock::new();
    let options = PostgresOptions::new().with_clock(clock.clone());
    let store = open_with(&clocked.url(), options).await;
    store.load(draft(1).id).await.unwrap();
    let (frost, watcher) = (session(&clocked.url).await, session(&clocked.url).await);
    frost.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
    until_blocked(&watcher).await;
    clocked.shift("2 minutes");
    clock.advance(Duration::from_secs(120));
    frost.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    assert!(!store.load(draft(1).id).await.unwrap().clock_held);
    assert_eq!(clocked.flag(), "f");
}

/// Until a node has tried to tell of a jump, and could not.
async fn until_refused(clocked: &Clocked) {
    let refused = async {
        while !clocked.postgres.log().contains("nobody is told") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(15), refused).await.expect("it tries to tell");
}

/// Whoever reads the flag relies on it: a crash must not take it back.
#[tokio::test]
async fn a_jump_is_told_durably() {
    let clocked = Clocked::start();
    let store = clocked.open().await;
    clocked.postgres.sql(
        &clocked.url,
        "CREATE TABLE fake.commits (how text);
         CREATE FUNCTION fake.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           INSERT INTO fake.commits VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
         CREATE TRIGGER notes BEFORE UPDATE ON onlyonce.meta FOR EACH ROW
           WHEN (NEW.clock_held AND NOT OLD.clock_held) EXECUTE FUNCTION fake.note()",
    );
    store.load(draft(1).id).await.unwrap();
    clocked.shift("1 day");
    assert!(store.load(draft(1).id).await.unwrap().clock_held);
    let told = async {
        while clocked.flag() != "t" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(5), told).await.expect("it is told");
    assert_eq!(clocked.postgres.sql(&clocked.url, "SELECT how FROM fake.commits"), "on");
}
