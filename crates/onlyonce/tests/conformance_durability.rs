//! The kill-and-check driver, tried on a store that writes before it answers and on one that does not.

#[path = "conformance_durability/journal.rs"]
mod journal;

use std::path::PathBuf;

use journal::Journal;
use onlyonce::store::conformance::durability::{
    Acked, check, child, kill_after, write_until_killed,
};

#[tokio::test]
async fn what_was_answered_before_a_kill_is_there_after_it() {
    for acks in [1, 100, 2_000] {
        let (acked, store) = killed("the_child_that_writes_first", acks);
        assert!(acked.count() >= acks);
        check(&store, &acked).await.expect("nothing is lost");
    }
}

#[tokio::test]
async fn a_store_that_answers_before_it_writes_is_found_out() {
    let (acked, store) = killed("the_child_that_answers_first", 500);
    let lost = check(&store, &acked).await.expect_err("writes are lost");
    assert!(lost.to_string().contains("writes were answered"), "{lost}");
}

/// An operation that nobody reported must not be far along.
#[tokio::test]
async fn what_was_never_sent_is_not_there() {
    let (_, store) = killed("the_child_that_writes_first", 200);
    let found = check(&store, &Acked::default()).await;
    found.expect_err("more was written than one step of each operation");
}

#[test]
fn a_child_that_ends_by_itself_is_an_error() {
    let child = child("no_such_test").expect("this binary is there");
    kill_after(child, 1).expect_err("it reports nothing");
}

#[tokio::test]
#[ignore = "a child of the tests above"]
async fn the_child_that_writes_first() {
    write(true).await;
}

#[tokio::test]
#[ignore = "a child of the tests above"]
async fn the_child_that_answers_first() {
    write(false).await;
}

/// Where the variable is not set nobody reads what the child reports.
async fn write(writes_first: bool) {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let store = Journal::open(path.as_ref(), writes_first).expect("the journal opens");
    let Err(why) = write_until_killed(store, std::io::stdout()).await;
    panic!("the child ended: {why}");
}

/// What a child reported before it was killed, and the store that it left.
fn killed(test: &str, acks: usize) -> (Acked, Journal) {
    let path = journal_path();
    let mut child = child(test).expect("this binary is there");
    child.env(PATH, &path);
    let acked = kill_after(child, acks).expect("the child reports its writes");
    let store = Journal::open(&path, true).expect("the journal opens");
    std::fs::remove_file(&path).expect("the journal is there");
    (acked, store)
}

fn journal_path() -> PathBuf {
    let unique = onlyonce::record::Token::random();
    let name = u128::from_be_bytes(*unique.as_bytes());
    std::env::temp_dir().join(format!("onlyonce-journal-{name:x}"))
}

const PATH: &str = "ONLYONCE_TEST_JOURNAL";
