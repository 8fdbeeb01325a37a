//! One process owns the file.

use super::*;
use crate::store::sqlite::SqliteOpenError;
use crate::store::{Fault, StoreError};

// threat B9
#[tokio::test]
async fn a_second_open_is_refused_until_the_first_is_closed() {
    let lab = Lab::new().await;
    let second = open(&lab.path(), &lab.clock).await;
    assert!(matches!(second, Err(SqliteOpenError::InUse { .. })));
    let clone = lab.store.clone();
    lab.store.close().await;
    assert!(matches!(clone.load(id(1)).await, Err(Fault::NotDone(StoreError::Closed))));
    assert!(matches!(clone.claim(draft(1)).await, Err(Fault::NotDone(StoreError::Closed))));
    open(&lab.path(), &lab.clock).await.unwrap();
}

#[tokio::test]
async fn dropping_the_last_clone_lets_go_of_the_file() {
    let Lab { directory, clock, store } = Lab::new().await;
    let path = directory.path().join("store.db");
    let clone = store.clone();
    drop(store);
    assert!(matches!(open(&path, &clock).await, Err(SqliteOpenError::InUse { .. })));
    drop(clone);
    open(&path, &clock).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_name_of_the_file_is_the_same_file() {
    let lab = Lab::new().await;
    let link = lab.directory.path().join("link.db");
    std::os::unix::fs::symlink(lab.path(), &link).unwrap();
    assert!(matches!(open(&link, &lab.clock).await, Err(SqliteOpenError::InUse { .. })));
}

// threat K35
#[cfg(unix)]
#[tokio::test]
async fn a_file_with_several_names_is_refused_under_each_of_them() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    let link = lab.directory.path().join("other/link.db");
    std::fs::create_dir(link.parent().unwrap()).unwrap();
    std::fs::hard_link(lab.path(), &link).unwrap();
    let refused = open(&link, &lab.clock).await;
    assert!(matches!(refused, Err(SqliteOpenError::Linked { names: 2, .. })));
    let (path, clock) = (lab.path(), lab.clock.clone());
    lab.store.close().await;
    let refused = open(&path, &clock).await;
    assert!(matches!(refused, Err(SqliteOpenError::Linked { names: 2, .. })));
    std::fs::remove_file(&link).unwrap();
    open(&path, &clock).await.unwrap();
}

// threat K35: a name that nobody can know of, in another container.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_file_itself_is_locked_and_not_only_its_name() {
    let lab = Lab::new().await;
    let other = std::fs::File::open(lab.path()).unwrap();
    assert!(other.try_lock().is_err(), "another process could own the file under another name");
    let (path, clock) = (lab.path(), lab.clock.clone());
    lab.store.close().await;
    other.try_lock().unwrap();
    assert!(matches!(open(&path, &clock).await, Err(SqliteOpenError::InUse { .. })));
    other.unlock().unwrap();
    open(&path, &clock).await.unwrap();
}

// threat E9
#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new().await;
    lab.settled(1).await;
    let files = std::fs::read_dir(lab.directory.path()).unwrap();
    let modes: Vec<_> =
        files.map(|file| file.unwrap().metadata().unwrap().permissions().mode() & 0o777).collect();
    assert!(modes.len() >= 3);
    assert!(modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
}

// threat E2
#[tokio::test]
async fn an_outside_reader_sees_committed_rows_and_stops_nobody() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let outside = rusqlite::Connection::open_with_flags(lab.path(), flags).unwrap();
    outside.execute_batch("BEGIN").unwrap();
    let rows = |db: &rusqlite::Connection| -> i64 {
        db.query_row("SELECT count(*) FROM record_27 WHERE state = 1", [], |row| row.get(0))
            .unwrap()
    };
    assert_eq!(rows(&outside), 1);
    for n in 2..50 {
        lab.settled(n).await;
    }
    assert_eq!(rows(&outside), 1);
    outside.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&outside), 49);
}

// threat B9
#[tokio::test]
async fn what_a_dead_process_left_running_is_unknown_and_its_revision_never_comes_back() {
    let lab = Lab::new().await;
    let token = lab.claimed(1).await;
    let lease = Lease::new(Duration::from_secs(30));
    for _ in 0..5 {
        lab.store.renew(&[(id(1), token)], lease).await.unwrap();
    }
    let before = lab.load(1).await.unwrap().revision();
    lab.clock.advance(1);
    let lab = lab.reopened().await;
    let record = lab.load(1).await.unwrap();
    assert_eq!(record.state, crate::record::State::Unknown { since: lab.clock.wall() });
    assert_eq!(record.token, token);
    assert!(record.count > before.count + u64::from(u32::MAX) - 100);
    let lab = lab.reopened().await;
    assert_eq!(lab.load(1).await.unwrap(), record);
    let settled = lab.swap(1, owner(token), settle(1)).await;
    assert!(matches!(settled, Swap::Done(_)));
}

// threat E1
#[tokio::test]
async fn every_commit_waits_for_the_disk() {
    let lab = Lab::new().await;
    let db = super::super::shared::lock(&lab.store.shared.checkpointer);
    let setting = |name| -> String {
        let value = db.as_ref().unwrap().pragma_query_value(None, name, |row| row.get(0));
        match value.unwrap() {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(setting("synchronous"), "2");
    assert_eq!(setting("journal_mode"), "wal");
    assert_eq!(setting("page_size"), "4096");
}
