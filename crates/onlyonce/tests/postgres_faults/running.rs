//! What is running is listed, however long ago it was begun and whoever asks.

use std::time::Duration;

use onlyonce::record::{StateKind, StateSet, Token};
use onlyonce::scope::OperationId;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::{Attempt, Draft, Guard, Lease, Maintain, Next, Notes, Scan, Store, Swap};
use servers::Postgres;
use tokio::time::timeout;

use crate::clock::Clocked;
use crate::lab::{brief, completed, draft, open, session, settled, until, won};

/// A database, and a node on it.
struct Lab {
    postgres: Postgres,
    url: String,
    store: PostgresStore,
}

impl Lab {
    async fn start() -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        let store = open(&url).await;
        Self { postgres, url, store }
    }

    /// As if it had been begun so many bins ago.
    fn age(&self, draft: &Draft, bins: i32) {
        let sql = "UPDATE onlyonce.record SET begun_bin = begun_bin -";
        self.postgres.sql(&self.url, &format!("{sql} {bins} WHERE id = '{}'", draft.id));
    }

    /// Lists what is running, and waits until the other nodes are told from where on.
    async fn tell(&self) {
        running(&self.store).await;
        let now = "floor(date_part('epoch', clock_timestamp()) * 1000)::bigint >> 12";
        let told = format!("SELECT running_from > ({now}) - {TOLD_BINS} FROM onlyonce.meta");
        until(&session(&self.url).await, &told).await;
    }

    fn number(&self, sql: &str) -> i64 {
        self.postgres.sql(&self.url, sql).parse().unwrap()
    }
}

/// All pages.
async fn running(store: &PostgresStore) -> Vec<OperationId> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let states = StateSet::of(&[StateKind::Running]);
        let page = store.scan(Scan { states, after, limit: 2 }).await.unwrap();
        found.extend(page.records.into_iter().map(|(id, _)| id));
        after = page.next;
        if after.is_none() {
            found.sort_unstable();
            return found;
        }
    }
    panic!("the pages have no end");
}

#[tokio::test]
async fn everything_that_runs_is_listed_once_whichever_bin_it_is_in() {
    let lab = Lab::start().await;
    for number in 1..=21 {
        won(&lab.store, &draft(number)).await;
        lab.age(&draft(number), i32::try_from(number % 4).unwrap() * 50);
    }
    for number in 22..=29 {
        completed(&lab.store, &draft(number)).await;
    }
    let all: Vec<_> = (1..=21).map(|number| draft(number).id).collect();
    assert_eq!(running(&lab.store).await, all);
    assert_eq!(running(&lab.store).await, all, "and again, now that it has passed them");
}

/// Two minutes are for commits that come late, and this one is older than that.
// threat B1
#[tokio::test]
async fn a_record_that_a_dead_owner_left_stays_listed_for_those_who_start_later_too() {
    let lab = Lab::start().await;
    let left = draft(1);
    won(&lab.store, &left).await;
    lab.age(&left, AGES_AGO);
    completed(&lab.store, &draft(2)).await;
    for _ in 0..3 {
        assert_eq!(running(&lab.store).await, [left.id]);
    }
    let beat = "SELECT running_from > 0 FROM onlyonce.meta";
    until(&session(&lab.url).await, beat).await;
    assert_eq!(running(&open(&lab.url).await).await, [left.id]);
    settled(&lab.store, &left).await;
    assert!(running(&lab.store).await.is_empty());
}

/// What was begun and ended before is not read again.
#[tokio::test]
async fn a_listing_begins_where_the_last_one_left_off() {
    let lab = Lab::start().await;
    for number in 1..=200 {
        completed(&lab.store, &draft(number)).await;
    }
    lab.postgres.sql(&lab.url, "UPDATE onlyonce.record SET begun_bin = begun_bin - 100");
    lab.tell().await;
    lab.store.close().await;
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'record_begun'";
    let before = lab.number(read);
    assert!(before >= 200, "it has read them once: {before}");
    let later = open(&lab.url).await;
    assert!(running(&later).await.is_empty());
    later.close().await;
    assert_eq!(lab.number(read), before);
}

/// It was begun 40 seconds ago, and its commit waited for a standby.
// threat C9
#[tokio::test]
async fn a_claim_whose_commit_came_late_is_listed() {
    let lab = Lab::start().await;
    lab.tell().await;
    won(&lab.store, &draft(1)).await;
    lab.age(&draft(1), 10);
    assert_eq!(running(&open(&lab.url).await).await, [draft(1).id]);
}

/// No listing looks where it is. Who asks for it sees that it should not be running any more.
#[tokio::test]
async fn a_record_that_no_listing_finds_is_listed_once_somebody_asks_for_it() {
    for asks in [false, true] {
        let lab = Lab::start().await;
        lab.tell().await;
        let lost = Draft { lease: Lease::new(Duration::from_millis(1)), ..draft(1) };
        won(&lab.store, &lost).await;
        lab.age(&lost, AGES_AGO);
        assert!(running(&lab.store).await.is_empty(), "it is hidden");
        let revision = lab.store.load(lost.id).await.unwrap().record.unwrap().revision();
        let listed = async {
            while running(&lab.store).await != [lost.id] {
                if asks {
                    assert!(!lab.store.claim(draft(1)).await.unwrap().mine);
                } else {
                    lab.store.load(lost.id).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(15), listed).await.expect("it is listed again");
        let seen = lab.store.load(lost.id).await.unwrap().record.unwrap();
        assert_eq!(seen.revision(), revision, "and nobody who guards it noticed");
    }
}

/// A new attempt at a key that expired long ago is running as any other.
#[tokio::test]
async fn an_attempt_that_takes_an_old_record_is_listed() {
    let lab = Lab::start().await;
    completed(&lab.store, &brief(1)).await;
    lab.age(&brief(1), AGES_AGO);
    lab.tell().await;
    let found = lab.store.load(brief(1).id).await.unwrap().record.unwrap();
    let draft = Draft { token: Token::random(), ..draft(1) };
    let attempt = Attempt { draft, attempt: 2, taken_from: None, first_claimed_at: None };
    let (guard, to) = (Guard::Unchanged(found.revision()), Next::Running(Box::new(attempt)));
    let taken = lab.store.swap(found_id(), guard, to, Notes::default()).await.unwrap();
    assert!(matches!(taken, Swap::Done(_)), "{taken:?}");
    assert_eq!(running(&lab.store).await, [found_id()]);
    assert_eq!(running(&open(&lab.url).await).await, [found_id()]);
}

fn found_id() -> OperationId {
    brief(1).id
}

/// One that runs for an hour does not make every listing read that hour.
#[tokio::test]
async fn a_renewal_moves_a_record_to_the_bin_of_its_moment() {
    let lab = Lab::start().await;
    won(&lab.store, &draft(1)).await;
    let bin = "SELECT begun_bin FROM onlyonce.record";
    let begun = lab.number(bin);
    lab.age(&draft(1), AGES_AGO);
    let token = lab.store.load(draft(1).id).await.unwrap().record.unwrap().token;
    let lease = Lease::new(Duration::from_secs(30));
    lab.store.renew(&[(draft(1).id, token)], lease).await.unwrap();
    assert!(lab.number(bin) >= begun);
    assert_eq!(running(&lab.store).await, [draft(1).id]);
}

/// The bins that were passed by the wrong clock are those of tomorrow.
// threat B8
#[tokio::test]
async fn what_is_begun_after_the_clock_was_set_back_is_listed_on_every_node() {
    let clocked = Clocked::start();
    clocked.shift("1 day");
    let (store, other) = (clocked.open().await, clocked.open().await);
    completed(&store, &draft(1)).await;
    for node in [&store, &other] {
        assert!(running(node).await.is_empty());
    }
    let tomorrow = "SELECT running_from > 0 FROM onlyonce.meta";
    until(&session(&clocked.url).await, tomorrow).await;
    clocked.shift("0");
    store.hold_clock(false).await.unwrap();
    won(&store, &draft(2)).await;
    let later = clocked.open().await;
    for node in [&store, &other, &later] {
        assert_eq!(running(node).await, [draft(2).id]);
    }
    clocked.until_beat().await;
    clocked.until_beat().await;
    assert_eq!(running(&clocked.open().await).await, [draft(2).id]);
}

/// Bins that are no longer looked at: more than the two minutes for late commits.
const AGES_AGO: i32 = 1_000;
/// A bin that was told lies a little more than two minutes back.
const TOLD_BINS: i32 = 40;
const PAGES_MAX: usize = 200;
