//! Logs that were removed, emptied or replaced: nothing that was answered is forgotten without a word.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use super::disk::{claim_again, is_unsure};
use super::*;
use crate::store::sqlite::{SqliteOpenError, inspect};

/// The files of the open store as a kill would leave them, in a directory of their own.
fn killed(path: &Path) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        let from = entry.unwrap().path();
        if !from.to_string_lossy().ends_with("-shm") {
            fs::copy(&from, directory.path().join(from.file_name().unwrap())).unwrap();
        }
    }
    let path = directory.path().join("store.db");
    (directory, path)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

fn remove(log: &Path) {
    fs::remove_file(log).unwrap();
}

fn empty(log: &Path) {
    OpenOptions::new().write(true).open(log).unwrap().set_len(0).unwrap();
}

fn zero(log: &Path) {
    let length = fs::metadata(log).unwrap().len();
    fs::write(log, vec![0; usize::try_from(length).unwrap()]).unwrap();
}

async fn open_accepting(path: &Path, clock: &TestClock) -> SqliteStore {
    let options = SqliteOptions::new().with_clock(clock.clone()).with_forgetting_accepted(true);
    SqliteStore::open_with(path, options).await.unwrap()
}

// threat E11
#[tokio::test]
async fn a_log_that_is_gone_or_empty_after_a_kill_is_refused_until_that_is_accepted() {
    for lose in [remove, empty, zero] {
        let lab = Lab::new().await;
        lab.settled(1).await;
        let (_directory, path) = killed(&lab.path());
        lose(&beside(&path, "-wal"));
        for _ in 0..2 {
            let error = open(&path, &lab.clock).await.unwrap_err();
            assert!(matches!(error, SqliteOpenError::LogLost { .. }), "{error}");
            let found = inspect(&path, false).unwrap().refusal;
            assert!(matches!(found, Some(SqliteOpenError::LogLost { .. })), "{found:?}");
        }
        let store = open_accepting(&path, &lab.clock).await;
        assert_eq!(store.load(id(1)).await.unwrap().record, None);
        store.close().await;
        open(&path, &lab.clock).await.unwrap();
    }
}

// threat E11
#[tokio::test]
async fn what_a_log_had_is_there_after_each_kill() {
    let mut lab = Lab::new().await;
    for n in 1..5 {
        lab.settled(n).await;
        let (directory, path) = killed(&lab.path());
        let store = open(&path, &lab.clock).await.unwrap();
        lab = Lab { directory, store, clock: lab.clock.clone() };
        for n in 1..=n {
            assert_eq!(lab.kind(n).await, Some(StateKind::Completed));
        }
    }
}

#[tokio::test]
async fn a_log_without_answered_records_may_be_absent() {
    let lab = Lab::new().await;
    let (_never_used, path) = killed(&lab.path());
    open(&path, &lab.clock).await.unwrap().close().await;
    remove_if_there(&beside(&path, "-wal"));
    open(&path, &lab.clock).await.unwrap();

    lab.settled(1).await;
    let (_written_back, path) = killed(&lab.path());
    let store = open(&path, &lab.clock).await.unwrap();
    let (_killed_again, path) = killed(&path);
    store.close().await;
    remove_if_there(&beside(&path, "-wal"));
    let store = open(&path, &lab.clock).await.unwrap();
    assert!(store.load(id(1)).await.unwrap().record.is_some());
}

fn remove_if_there(path: &Path) {
    drop(fs::remove_file(path));
}

// threat E12
#[tokio::test]
async fn a_log_removed_under_an_open_store_is_written_back_and_the_store_goes_on() {
    let lab = Lab::new().await;
    for n in 1..20 {
        lab.settled(n).await;
    }
    remove(&beside(&lab.path(), "-wal"));
    assert!(is_unsure(&lab.store.claim(draft(20)).await));
    claim_again(&lab, &draft(21)).await;
    lab.settled(22).await;
    let (_directory, path) = killed(&lab.path());
    let store = open(&path, &lab.clock).await.unwrap();
    for n in (1..20).chain([22]) {
        assert_eq!(answer(&store.load(id(n)).await.unwrap()), Some(&response(n)), "key {n}");
    }
    assert!(store.load(id(20)).await.unwrap().record.is_some(), "it was committed");
}

// threat E12
#[tokio::test]
async fn a_replaced_file_or_log_is_saved_and_the_next_open_says_where() {
    let replace_store = |path: &Path| {
        fs::copy(path, beside(path, "-copy")).unwrap();
        fs::rename(beside(path, "-copy"), path).unwrap();
    };
    let remove_store = |path: &Path| remove(path);
    let replace_log = |path: &Path| {
        fs::write(beside(path, "-other"), b"").unwrap();
        fs::rename(beside(path, "-other"), beside(path, "-wal")).unwrap();
    };
    let ways: [&dyn Fn(&Path); 3] = [&replace_store, &remove_store, &replace_log];
    for replace in ways {
        let lab = Lab::new().await;
        for n in 1..20 {
            lab.settled(n).await;
        }
        replace(&lab.path());
        assert!(is_unsure(&lab.store.claim(draft(20)).await));
        assert!(lab.store.claim(draft(21)).await.is_err());
        lab.store.close().await;

        let path = fs::canonicalize(lab.directory.path()).unwrap().join("store.db");
        let rescued = beside(&path, "-rescued");
        let error = open(&path, &lab.clock).await.unwrap_err();
        assert!(
            matches!(&error, SqliteOpenError::Rescued { rescued: named, .. } if *named == rescued),
            "{error}"
        );
        let found = inspect(&path, false).unwrap().refusal;
        assert!(matches!(found, Some(SqliteOpenError::Rescued { .. })), "{found:?}");

        // What the error says.
        remove_if_there(&beside(&path, "-wal"));
        remove_if_there(&beside(&path, "-shm"));
        fs::rename(rescued, &path).unwrap();
        let store = open(&path, &lab.clock).await.unwrap();
        for n in 1..20 {
            assert_eq!(answer(&store.load(id(n)).await.unwrap()), Some(&response(n)), "key {n}");
        }
    }
}

// threat E11: the descriptor of the lost log is closed after an I/O error, and SQLite would begin with an empty one.
#[tokio::test]
async fn a_log_that_is_lost_during_a_disk_error_forgets_nothing() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    lab.store.shared.faults.fail_before(1);
    remove(&beside(&lab.path(), "-wal"));
    assert!(is_unsure(&lab.store.claim(draft(2)).await));
    assert!(lab.store.claim(draft(3)).await.is_err());
    lab.store.close().await;
    let error = open(&lab.path(), &lab.clock).await.unwrap_err();
    assert!(matches!(error, SqliteOpenError::Rescued { .. }), "{error}");
}
