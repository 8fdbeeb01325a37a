//! The life of operations, as the trail tells it.

use std::time::Duration;

use onlyonce::EventKind::{
    Claimed, Erased, Executed, Expired, Forgotten, Mismatched, RefusedInFlight, Released, Replayed,
    Settled, Unknown,
};
use onlyonce::{Action, Failure, Outcome};

use super::lab::{Lab, answer, by, operation};

// R177
pub(crate) async fn tells_every_change_once(lab: &Lab) {
    charged_and_replayed(lab).await;
    settled_by_a_person(lab).await;
    released_and_run_again(lab).await;
    refused_while_it_runs(lab).await;
    erased_by_a_person(lab).await;
    lab.whole().await;
}

async fn charged_and_replayed(lab: &Lab) {
    assert_eq!(lab.run("order-1", "ch_1").await, Outcome::Fresh("ch_1".to_owned()));
    for _ in 0..3 {
        assert_eq!(lab.run("order-1", "ch_2").await, Outcome::Replayed("ch_1".to_owned()));
    }
    let other = operation("order-1").with_payload(&"another amount").unwrap();
    let other = lab.once.run(other, |_| async { Ok("ch_3".to_owned()) }).await.unwrap();
    assert_eq!(other, Outcome::Reused);
    let kinds = lab.kinds("order-1", 6).await;
    assert_eq!(kinds, [Claimed, Executed, Replayed, Replayed, Replayed, Mismatched]);
    let entries = lab.entries("order-1", 6).await;
    let executed = entries.iter().find(|entry| entry.note.kind == Executed).unwrap();
    assert_eq!(executed.note.status, Some(200));
    assert_eq!(executed.note.about.attempt, Some(1));
    assert_eq!(&*executed.note.about.route, "charges");
    assert_eq!(executed.note.about.by, None);
    let ids: Vec<_> = executed.note.about.ids.iter().map(|id| (&*id.pointer, &*id.value)).collect();
    assert_eq!(ids, [("", "ch_1")]);
    let id = executed.note.id.unwrap();
    assert_eq!(lab.once.operations().replays(id).await.unwrap(), 3);
}

async fn settled_by_a_person(lab: &Lab) {
    let id = lab.unknown("order-2").await;
    let settle = Action::Settle(answer("\"ch_9\""));
    lab.once.operations().change(id, &settle, &by()).await.unwrap();
    lab.once.operations().change(id, &Action::Forget, &by()).await.unwrap();
    let kinds = lab.kinds("order-2", 4).await;
    assert_eq!(kinds, [Claimed, Unknown, Settled, Forgotten]);
    let entries = lab.entries("order-2", 4).await;
    let who: Vec<_> = entries.iter().map(|entry| entry.note.about.by.is_some()).collect();
    assert_eq!(who, [false, false, true, true]);
    assert_eq!(entries[2].note.about.ids.len(), 1, "an operator's answer names the charge too");
}

// R184, threat H4: the trail still finds what was erased
async fn erased_by_a_person(lab: &Lab) {
    assert_eq!(lab.run("order-9", "ch_5").await, Outcome::Fresh("ch_5".to_owned()));
    let id = lab.entries("order-9", 2).await[0].note.id.unwrap();
    lab.once.operations().change(id, &Action::Erase, &by()).await.unwrap();
    assert_eq!(lab.kinds("order-9", 3).await, [Claimed, Executed, Erased]);
    let erased = &lab.entries("order-9", 3).await[2].note;
    assert_eq!((erased.status, erased.about.by.is_some()), (Some(200), true));
}

async fn released_and_run_again(lab: &Lab) {
    let id = lab.unknown("order-3").await;
    lab.once.operations().change(id, &Action::Release { force: true }, &by()).await.unwrap();
    assert_eq!(lab.run("order-3", "ch_1").await, Outcome::Fresh("ch_1".to_owned()));
    let kinds = lab.kinds("order-3", 5).await;
    assert_eq!(kinds, [Claimed, Unknown, Released, Claimed, Executed]);
    let entries = lab.entries("order-3", 5).await;
    let attempts: Vec<_> = entries.iter().map(|entry| entry.note.about.attempt).collect();
    assert_eq!(attempts, [1, 1, 1, 2, 2].map(Some));
    let not_done = lab
        .once
        .run(operation("order-4"), |_| async { Err::<String, _>(Failure::not_done("no stock")) });
    assert!(not_done.await.is_err());
    assert_eq!(lab.kinds("order-4", 2).await, [Claimed, Released]);
}

async fn refused_while_it_runs(lab: &Lab) {
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let first = lab.once.run(operation("order-5"), |_| async move {
        begin.send(()).unwrap();
        let _ = ended.await;
        Ok("ch_5".to_owned())
    });
    let second = async {
        begun.await.unwrap();
        let refused = lab.run("order-5", "ch_6").await;
        assert!(matches!(refused, Outcome::InProgress { .. }));
        end.send(()).unwrap();
    };
    let (first, ()) = tokio::join!(first, second);
    assert_eq!(first.unwrap(), Outcome::Fresh("ch_5".to_owned()));
    let mut kinds = lab.kinds("order-5", 3).await;
    kinds.sort_by_key(|kind| kind.name());
    assert_eq!(kinds, [Claimed, Executed, RefusedInFlight]);
}

/// Executed, replayed three times, expired and swept: the record is gone, and the trail tells all of it.
// R178
pub(crate) async fn proves_a_dedup_after_the_key_is_gone(lab: &Lab) {
    assert_eq!(lab.run("order-8", "ch_8").await, Outcome::Fresh("ch_8".to_owned()));
    for _ in 0..3 {
        assert_eq!(lab.run("order-8", "again").await, Outcome::Replayed("ch_8".to_owned()));
    }
    let id = lab.entries("order-8", 5).await[0].note.id.unwrap();
    lab.clock.advance(Duration::from_secs(25 * 60 * 60));
    let operations = lab.once.operations();
    for _ in 0..500 {
        operations.sweep().await.unwrap();
        if operations.find(id).await.unwrap().is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(operations.find(id).await.unwrap(), None);
    let kinds = lab.kinds("order-8", 6).await;
    assert_eq!(kinds, [Claimed, Executed, Replayed, Replayed, Replayed, Expired]);
    assert_eq!(operations.replays(id).await.unwrap(), 3);
    lab.whole().await;
}

#[tokio::test]
async fn every_change_of_a_record_is_told_once_in_memory() {
    tells_every_change_once(&Lab::memory()).await;
}

#[tokio::test]
async fn every_change_of_a_record_is_told_once_by_sqlite() {
    tells_every_change_once(&Lab::sqlite().await).await;
}

#[tokio::test]
async fn the_trail_outlives_the_key_in_memory() {
    proves_a_dedup_after_the_key_is_gone(&Lab::memory()).await;
}

#[tokio::test]
async fn the_trail_outlives_the_key_in_sqlite() {
    proves_a_dedup_after_the_key_is_gone(&Lab::sqlite().await).await;
}

#[tokio::test]
async fn without_a_trail_there_is_nothing_to_read() {
    let once = onlyonce::Once::new(onlyonce::store::memory::MemoryStore::new());
    let operations = once.operations();
    assert!(!operations.is_audited());
    let refused = operations.audit_heads().await.unwrap_err();
    assert_eq!(refused.to_string(), "this store keeps no audit trail");
}
