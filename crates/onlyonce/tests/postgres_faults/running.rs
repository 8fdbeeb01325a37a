//! What is running is listed, however long ago it was begun and whoever asks.

use onlyonce::record::{StateKind, StateSet, Token};
use onlyonce::scope::OperationId;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::{Attempt, Draft, Guard, Maintain, Next, Notes, Scan, Store, Swap};
use servers::Postgres;

use crate::clock::Clocked;
use crate::lab::{brief, completed, draft, lock, open, session, settled, until, until_gone, won};

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

    fn sql(&self, sql: &str) -> String {
        self.postgres.sql(&self.url, sql)
    }

    fn number(&self, sql: &str) -> i64 {
        self.sql(sql).parse().unwrap()
    }

    /// Lets transactions of so many bins go by.
    fn burn(&self, bins: u32) {
        let each = "PERFORM pg_current_xact_id(); COMMIT;";
        let count = bins * TRANSACTIONS;
        self.sql(&format!("DO $$ BEGIN FOR i IN 1..{count} LOOP {each} END LOOP; END $$"));
    }

    /// So many completed records, in the bin of this moment and those after it.
    async fn fill(&self, rows: u32, bin: &str) {
        let model = draft(1_000_000);
        completed(&self.store, &model).await;
        let columns = format!("'id', gen_random_uuid(), 'begun_bin', r.begun_bin + {bin}");
        self.sql(&format!(
            "INSERT INTO onlyonce.record SELECT (x.r).* FROM (
               SELECT jsonb_populate_record(r, jsonb_build_object({columns})) AS r
                 FROM onlyonce.record r, generate_series(1, {rows}) i WHERE r.id = '{}') x",
            model.id
        ));
    }

    /// Lists what is running, and waits until the others are told from the bin of this moment on.
    async fn tell(&self) {
        let bin = self.number(NOW_BIN);
        running(&self.store).await;
        self.until_told(bin).await;
    }

    async fn until_told(&self, bin: i64) {
        let told = format!("SELECT running_from >= {bin} FROM onlyonce.meta");
        until(&session(&self.url).await, &told).await;
    }
}

async fn running(store: &PostgresStore) -> Vec<OperationId> {
    listed(store, 2).await
}

/// All pages of so many.
async fn listed(store: &PostgresStore, limit: usize) -> Vec<OperationId> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let states = StateSet::of(&[StateKind::Running]);
        let page = store.scan(Scan { states, after, limit }).await.unwrap();
        found.extend(page.records.into_iter().map(|(id, _)| id));
        after = page.next;
        if after.is_none() {
            found.sort_unstable();
            return found;
        }
    }
    panic!("the pages have no end");
}

/// A running record of operation `to`, as a statement that makes it from another.
fn copy_of(from: &Draft, to: &Draft, bin: &str) -> String {
    let columns = format!("jsonb_build_object('id', '{}', 'begun_bin', {bin})", to.id);
    format!(
        "INSERT INTO onlyonce.record SELECT (jsonb_populate_record(r, {columns})).*
           FROM onlyonce.record r WHERE id = '{}'",
        from.id
    )
}

#[tokio::test]
async fn everything_that_runs_is_listed_once_whichever_bin_it_is_in() {
    let lab = Lab::start().await;
    for number in 1..=21 {
        won(&lab.store, &draft(number)).await;
        completed(&lab.store, &draft(100 + number)).await;
        lab.burn(u32::from(number % 4 == 0));
    }
    let all: Vec<_> = (1..=21).map(|number| draft(number).id).collect();
    for _ in 0..3 {
        assert_eq!(running(&lab.store).await, all);
    }
}

/// It is moved up, so that no listing has to look at everything that was begun since. Nobody who guards it notices.
#[tokio::test]
async fn a_record_that_a_dead_owner_left_stays_listed_for_those_who_start_later_too() {
    let lab = Lab::start().await;
    let left = draft(1);
    won(&lab.store, &left).await;
    let before = lab.store.load(left.id).await.unwrap().record;
    lab.burn(OLD_BINS + 10);
    lab.fill(PAGE_ROWS, "0").await;
    lab.burn(1);
    let now = lab.number(NOW_BIN);
    for _ in 0..3 {
        assert_eq!(running(&lab.store).await, [left.id]);
    }
    lab.until_told(now).await;
    assert_eq!(running(&open(&lab.url).await).await, [left.id]);
    assert_eq!(lab.store.load(left.id).await.unwrap().record, before);
    settled(&lab.store, &left).await;
    assert!(running(&lab.store).await.is_empty());
}

/// It is locked, so that it cannot be moved up: then listings begin where it is.
#[tokio::test]
async fn a_record_that_cannot_be_moved_up_stays_listed() {
    for bins in ["- 100", "+ 100000"] {
        let lab = Lab::start().await;
        lab.burn(OLD_BINS + 100);
        lab.fill(PAGE_ROWS, "0").await;
        won(&lab.store, &draft(1)).await;
        lab.sql(&format!(
            "UPDATE onlyonce.record SET begun_bin = begun_bin {bins} WHERE state = 1"
        ));
        let other = session(&lab.url).await;
        lock(&other, &draft(1)).await;
        let later = open(&lab.url).await;
        for store in [&lab.store, &lab.store, &later, &later, &later] {
            assert_eq!(running(store).await, [draft(1).id], "{bins}");
        }
    }
}

/// More records than a listing looks at, in three bins or all in one.
#[tokio::test]
async fn what_runs_among_very_many_is_listed() {
    for in_three in ["i % 3", "1"] {
        let lab = Lab::start().await;
        lab.fill(PAGE_ROWS + 5_000, in_three).await;
        let left = "state = 1, lease_until = 1, expires_at = NULL, settled_by = NULL, head = NULL, body = NULL";
        lab.sql(&format!("UPDATE onlyonce.record SET {left} WHERE id::text LIKE '00%'"));
        let left = lab.number("SELECT count(*) FROM onlyonce.record WHERE state = 1");
        let left = usize::try_from(left).unwrap();
        let later = open(&lab.url).await;
        for (store, limit) in [(&lab.store, 500), (&lab.store, 2), (&later, 500), (&later, 60)] {
            let mut found = listed(store, limit).await;
            let count = found.len();
            found.dedup();
            assert!(left > 50 && count == found.len(), "each once: {count} of {left}");
            assert_eq!(count, left, "{in_three}");
        }
    }
}

/// What was begun and ended before is not read again.
#[tokio::test]
async fn a_listing_begins_where_the_last_one_left_off() {
    let lab = Lab::start().await;
    for number in 1..=200 {
        completed(&lab.store, &draft(number)).await;
    }
    lab.burn(2);
    lab.tell().await;
    lab.store.close().await;
    until_gone(&session(&lab.url).await).await;
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'record_begun'";
    let before = lab.number(read);
    assert!(before >= 200, "it has read them once: {before}");
    let later = open(&lab.url).await;
    assert!(running(&later).await.is_empty());
    later.close().await;
    until_gone(&session(&lab.url).await).await;
    assert_eq!(lab.number(read), before);
}

/// Its transaction was under way while listings passed its bin: on this node, and on one that starts later.
#[tokio::test]
async fn a_claim_whose_commit_came_late_is_listed() {
    let lab = Lab::start().await;
    let model = draft(1);
    won(&lab.store, &model).await;
    lab.burn(2);
    let other = session(&lab.url).await;
    let own = "pg_current_xact_id()::text::bigint >> 6";
    let late = copy_of(&model, &draft(2), &format!("({own})"));
    other.batch_execute(&format!("BEGIN; {late}")).await.unwrap();
    lab.burn(OLD_BINS + 10);
    settled(&lab.store, &model).await;
    for _ in 0..3 {
        assert!(running(&lab.store).await.is_empty(), "nobody sees it yet");
    }
    lab.until_told(2).await;
    let later = open(&lab.url).await;
    other.batch_execute("COMMIT").await.unwrap();
    for store in [&lab.store, &later] {
        assert_eq!(running(store).await, [draft(2).id]);
    }
}

/// A new attempt at a key that expired long ago is running as any other.
#[tokio::test]
async fn an_attempt_that_takes_an_old_record_is_listed() {
    let lab = Lab::start().await;
    completed(&lab.store, &brief(1)).await;
    lab.burn(2);
    lab.tell().await;
    let found = lab.store.load(brief(1).id).await.unwrap().record.unwrap();
    let draft = Draft { token: Token::random(), ..draft(1) };
    let id = draft.id;
    let attempt = Attempt { draft, attempt: 2, taken_from: None, first_claimed_at: None };
    let (guard, to) = (Guard::Unchanged(found.revision()), Next::Running(Box::new(attempt)));
    let taken = lab.store.swap(id, guard, to, Notes::default()).await.unwrap();
    assert!(matches!(taken, Swap::Done(_)), "{taken:?}");
    assert_eq!(running(&lab.store).await, [id]);
    assert_eq!(running(&open(&lab.url).await).await, [id]);
}

/// Listings do not go by the clock.
// threat B7
#[tokio::test]
async fn what_is_begun_after_the_clock_was_set_back_is_listed_on_every_node() {
    let clocked = Clocked::start();
    clocked.shift("1 day");
    let (store, other) = (clocked.open().await, clocked.open().await);
    completed(&store, &draft(1)).await;
    for node in [&store, &other] {
        assert!(running(node).await.is_empty());
    }
    clocked.until_beat().await;
    clocked.shift("0");
    store.hold_clock(false).await.unwrap();
    won(&store, &draft(2)).await;
    let later = clocked.open().await;
    for node in [&store, &other, &later] {
        assert_eq!(running(node).await, [draft(2).id]);
    }
}

/// The records were brought from a server whose transactions had higher numbers.
#[tokio::test]
async fn records_that_came_from_another_server_are_listed_and_so_are_those_begun_here() {
    let lab = Lab::start().await;
    won(&lab.store, &draft(1)).await;
    lab.store.close().await;
    lab.sql("UPDATE onlyonce.record SET begun_bin = begun_bin + 1000000");
    lab.sql("UPDATE onlyonce.meta SET running_from = 1000000");
    let later = open(&lab.url).await;
    won(&later, &draft(2)).await;
    let both = [draft(1).id, draft(2).id];
    assert_eq!(running(&later).await, both);
    let told = format!("SELECT running_from <= ({NOW_BIN}) FROM onlyonce.meta");
    until(&session(&lab.url).await, &told).await;
    for store in [&later, &open(&lab.url).await] {
        assert_eq!(running(store).await, both);
    }
}

/// What that server told is wrong from the first moment on, not only until the numbers here have passed it.
#[tokio::test]
async fn what_was_told_by_another_server_is_forgotten_before_it_looks_right() {
    let lab = Lab::start().await;
    lab.store.close().await;
    lab.sql(&format!("UPDATE onlyonce.meta SET running_from = ({NOW_BIN}) + 3"));
    let store = open(&lab.url).await;
    let told = format!("SELECT running_from <= ({NOW_BIN}) FROM onlyonce.meta");
    until(&session(&lab.url).await, &told).await;
    won(&store, &draft(1)).await;
    lab.burn(10);
    assert_eq!(running(&open(&lab.url).await).await, [draft(1).id]);
}

/// A node of a later version left it. It is not ours to read or to move, and those who can must find it.
#[tokio::test]
async fn a_running_record_of_another_format_is_left_for_those_who_know_it() {
    let lab = Lab::start().await;
    won(&lab.store, &draft(1)).await;
    lab.sql("UPDATE onlyonce.record SET format = 2");
    lab.burn(OLD_BINS + 10);
    lab.fill(PAGE_ROWS, "0").await;
    for _ in 0..3 {
        assert!(running(&lab.store).await.is_empty());
    }
    until(&session(&lab.url).await, "SELECT running_from > 1 FROM onlyonce.meta").await;
    let found = "SELECT begun_bin = ANY (running_early) FROM onlyonce.meta, onlyonce.record WHERE state = 1";
    assert_eq!(lab.sql(found), "t");
}

/// Another server took over, which has not seen all that the first one had: there, something runs that had ended.
#[tokio::test]
async fn what_was_learned_of_one_server_is_not_said_of_the_next() {
    let lab = Lab::start().await;
    won(&lab.store, &draft(1)).await;
    lab.burn(2);
    settled(&lab.store, &draft_of(&lab, 1).await).await;
    lab.tell().await;
    let undone = "UPDATE onlyonce.record SET state = 1, lease_until = 1, expires_at = NULL, settled_by = NULL, \
                  head = NULL, body = NULL; UPDATE onlyonce.meta SET running_from = 1";
    let sessions = "FROM pg_stat_activity WHERE application_name = 'onlyonce'";
    lab.sql(&format!("SELECT pg_terminate_backend(pid) {sessions}; {undone}"));
    let before = lab.sql("SELECT xmin FROM onlyonce.meta");
    let beat = format!("SELECT xmin::text <> '{before}' FROM onlyonce.meta");
    until(&session(&lab.url).await, &beat).await;
    assert_eq!(running(&lab.store).await, [draft(1).id]);
    assert_eq!(running(&open(&lab.url).await).await, [draft(1).id]);
}

/// Its owner's draft.
async fn draft_of(lab: &Lab, number: u64) -> Draft {
    let token = lab.store.load(draft(number).id).await.unwrap().record.unwrap().token;
    Draft { token, ..draft(number) }
}

const NOW_BIN: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint >> 6";
/// Transactions of a bin.
const TRANSACTIONS: u32 = 64;
/// Bins after which a record is moved up.
const OLD_BINS: u32 = 64;
/// More records than one page looks at.
const PAGE_ROWS: u32 = 33_000;
const PAGES_MAX: usize = 200;
