//! What operators find and change, on a store of this process.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use onlyonce::clock::{Clock, StoreTime};
use onlyonce::record::{Kept, Response, SettledBy, State, StateKind, StateSet};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::memory::MemoryStore;
use onlyonce::{
    Action, By, EventKind, Failure, Heard, Once, OperateError, Operation, OperationFilter, Outcome,
    Policy,
};

fn by() -> By {
    By::new("ann", "the provider's log has it").unwrap()
}

fn operation(key: &str, who: &str) -> Operation {
    Operation::new("charges", Principal::of("user", who.as_bytes()), key).unwrap()
}

/// Leaves an operation unknown, and returns its id.
async fn unknown(once: &Once, key: &str, who: &str) -> OperationId {
    let (tell, told) = tokio::sync::oneshot::channel();
    let outcome = once.run(operation(key, who), |attempt| async move {
        tell.send(attempt.id).unwrap();
        Err::<u32, _>(Failure::Unknown("the card network did not answer".into()))
    });
    assert!(matches!(outcome.await.unwrap(), Outcome::Unknown { .. }));
    told.await.unwrap()
}

fn answer(text: &'static str) -> Arc<Response> {
    let body = Kept::Bytes { body: Bytes::from_static(text.as_bytes()), trailers: None };
    Arc::new(Response { status: StatusCode::OK, headers: HeaderMap::new(), body })
}

fn of_state(state: StateKind) -> OperationFilter {
    OperationFilter { states: StateSet::of(&[state]), ..OperationFilter::default() }
}

// R179
#[tokio::test]
async fn an_unknown_outcome_is_found_settled_and_replayed() {
    let once = Once::new(MemoryStore::new());
    let id = unknown(&once, "order-1", "ann").await;
    let operations = once.operations();
    let listed = operations.list(&of_state(StateKind::Unknown), None, 10).await.unwrap();
    assert_eq!(listed.operations.iter().map(|found| found.id).collect::<Vec<_>>(), [id]);
    operations.change(id, &Action::Settle(answer("7")), &by()).await.unwrap();
    let found = operations.find(id).await.unwrap().unwrap();
    assert!(matches!(found.record.state, State::Completed { settled_by: SettledBy::Operator, .. }));
    let again = once.run(operation("order-1", "ann"), |_| async { Ok::<u32, Failure>(8) });
    assert_eq!(again.await.unwrap(), Outcome::Replayed(7), "the retry gets the operator's answer");
    assert_eq!(once.counts().executed, 1);
}

#[tokio::test]
async fn an_operation_that_failed_for_good_is_never_run_again() {
    let once = Once::new(MemoryStore::new());
    let id = unknown(&once, "order-1", "ann").await;
    once.operations().change(id, &Action::Fail, &by()).await.unwrap();
    let found = once.operations().find(id).await.unwrap().unwrap();
    let response = found.record.response().unwrap();
    assert_eq!(response.status, StatusCode::BAD_GATEWAY);
    let Kept::Bytes { body, .. } = &response.body else { panic!("a body that says so") };
    assert!(std::str::from_utf8(body).unwrap().contains("idempotency_operation_failed"));
    let again = once.run(operation("order-1", "ann"), |_| async { Ok::<u32, Failure>(8) });
    assert!(again.await.is_err());
    assert_eq!(once.counts().executed, 1);
}

#[tokio::test]
async fn a_release_is_refused_before_its_quiet_time_unless_it_is_forced() {
    let once = Once::new(MemoryStore::new());
    let id = unknown(&once, "order-1", "ann").await;
    let operations = once.operations();
    let early = operations.change(id, &Action::Release { force: false }, &by()).await;
    let at = operations.find(id).await.unwrap().unwrap().releasable_at().unwrap();
    assert!(matches!(early, Err(OperateError::TooEarly { at: said }) if said == at), "{early:?}");
    operations.change(id, &Action::Release { force: true }, &by()).await.unwrap();
    let again = once.run(operation("order-1", "ann"), |attempt| async move {
        Ok::<u32, Failure>(attempt.number)
    });
    assert_eq!(again.await.unwrap(), Outcome::Fresh(2), "it runs again, as the second attempt");
}

#[tokio::test]
async fn a_forgotten_key_runs_again_at_once_where_it_was_forgotten() {
    let once = Once::new(MemoryStore::new());
    let run = |value| once.run(operation("order-1", "ann"), move |_| async move { Ok(value) });
    assert_eq!(run(1_u32).await.unwrap(), Outcome::Fresh(1));
    assert_eq!(run(2).await.unwrap(), Outcome::Replayed(1));
    let done = once.operations().list(&of_state(StateKind::Completed), None, 10).await.unwrap();
    once.operations().change(done.operations[0].id, &Action::Forget, &by()).await.unwrap();
    assert_eq!(run(3).await.unwrap(), Outcome::Fresh(3));
}

#[tokio::test]
async fn each_state_allows_its_own_actions_only() {
    let once = Once::new(MemoryStore::new());
    let held = unknown(&once, "order-1", "ann").await;
    let operations = once.operations();
    for action in [Action::Forget, Action::Erase] {
        let forbidden = operations.change(held, &action, &by()).await.unwrap_err();
        assert!(matches!(forbidden, OperateError::StateForbids { state: StateKind::Unknown }));
    }
    operations.change(held, &Action::Settle(answer("7")), &by()).await.unwrap();
    for action in [Action::Fail, Action::Settle(answer("8")), Action::Release { force: true }] {
        let error = operations.change(held, &action, &by()).await.unwrap_err();
        let is_forbidden =
            matches!(error, OperateError::StateForbids { state: StateKind::Completed });
        assert!(is_forbidden, "{error}");
    }
    let nobody = OperationId::from_bytes([7; 16]);
    let absent = operations.change(nobody, &Action::Fail, &by()).await.unwrap_err();
    assert!(matches!(absent, OperateError::NotFound));
}

#[tokio::test]
async fn a_list_has_what_every_given_value_fits() {
    let once = Once::new(MemoryStore::new());
    for (key, who) in [("order-1", "ann"), ("order-2", "ann"), ("order-1", "bob"), ("x", "bob")] {
        unknown(&once, key, who).await;
    }
    let listed = async |filter: OperationFilter| {
        let page = once.operations().list(&filter, None, 10).await.unwrap();
        page.operations.len()
    };
    let all = OperationFilter::default;
    let ann: String =
        Principal::of("user", b"ann").as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(listed(all()).await, 4);
    assert_eq!(listed(OperationFilter { key: Some("order-1".into()), ..all() }).await, 2);
    assert_eq!(listed(OperationFilter { key: Some("order".into()), ..all() }).await, 0);
    assert_eq!(listed(OperationFilter { key_prefix: Some("order".into()), ..all() }).await, 3);
    assert_eq!(listed(OperationFilter { principal: Some(ann.clone()), ..all() }).await, 2);
    assert_eq!(listed(OperationFilter { principal: Some(ann[..8].into()), ..all() }).await, 2);
    assert_eq!(listed(OperationFilter { route: Some("elsewhere".into()), ..all() }).await, 0);
    assert_eq!(listed(OperationFilter { older: Some(Duration::ZERO), ..all() }).await, 4);
    let hour = Some(Duration::from_secs(3_600));
    assert_eq!(listed(OperationFilter { older: hour, ..all() }).await, 0);
    assert_eq!(listed(of_state(StateKind::Running)).await, 0);
}

#[tokio::test]
async fn pages_show_every_operation_once() {
    let once = Once::new(MemoryStore::new());
    for number in 0..25 {
        unknown(&once, &format!("order-{number}"), "ann").await;
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = once.operations().list(&OperationFilter::default(), after, 7).await.unwrap();
        assert!(page.operations.len() <= 7);
        found.extend(page.operations.into_iter().map(|operation| operation.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 25);
}

#[tokio::test]
async fn many_are_changed_at_once_and_a_dry_run_changes_nothing() {
    let once = Once::new(MemoryStore::new());
    for number in 0..500 {
        unknown(&once, &format!("order-{number}"), "ann").await;
    }
    let operations = once.operations();
    let (filter, action) = (of_state(StateKind::Unknown), Action::Release { force: true });
    let chosen = operations.select(&filter).await.unwrap();
    let dry = operations.change_all(&chosen, &action, &by(), true).await.unwrap();
    assert_eq!((dry.matched, dry.changed, dry.refused, dry.sample.len()), (500, 500, 0, 10));
    assert_eq!(operations.census().await.unwrap().unknown, 500);
    let early = Action::Release { force: false };
    let refused = operations.change_all(&chosen, &early, &by(), true).await.unwrap();
    assert_eq!((refused.changed, refused.refused, refused.refusals.len()), (0, 500, 10));
    let done = operations.change_all(&chosen, &action, &by(), false).await.unwrap();
    assert_eq!((done.matched, done.changed, done.refused), (500, 500, 0));
    assert_eq!(operations.census().await.unwrap().unknown, 0);
}

#[tokio::test]
async fn a_change_is_made_only_of_what_was_seen() {
    let once = Once::new(MemoryStore::new());
    let id = unknown(&once, "order-1", "ann").await;
    let operations = once.operations();
    let seen = operations.find(id).await.unwrap().unwrap();
    // Somebody else releases it, the client's retry runs, and its answer is lost again.
    operations.change(id, &Action::Release { force: true }, &by()).await.unwrap();
    unknown(&once, "order-1", "ann").await;
    let now = operations.find(id).await.unwrap().unwrap();
    assert_ne!(seen.revision(), now.revision());
    let release = Action::Release { force: true };
    let late = operations.change_seen(&seen, &release, &by()).await;
    assert!(matches!(late, Err(OperateError::Changed)), "{late:?}");
    assert_eq!(operations.find(id).await.unwrap().unwrap().record, now.record);
    operations.change_seen(&now, &release, &by()).await.unwrap();
}

// threat J13
#[tokio::test]
async fn many_are_changed_only_if_they_are_as_they_were_chosen() {
    let once = Once::new(MemoryStore::new());
    let settled = unknown(&once, "order-1", "ann").await;
    unknown(&once, "order-2", "ann").await;
    let (operations, filter) = (once.operations(), of_state(StateKind::Unknown));
    let chosen = operations.select(&filter).await.unwrap();
    assert_eq!(
        (chosen.len(), chosen.digest()),
        (2, operations.select(&filter).await.unwrap().digest())
    );
    operations.change(settled, &Action::Fail, &by()).await.unwrap();
    let newcomer = unknown(&once, "order-3", "ann").await;
    let now = operations.select(&filter).await.unwrap();
    assert_eq!(now.len(), 2, "as many, and not the same");
    assert_ne!(now.digest(), chosen.digest());
    let done = operations.change_all(&chosen, &Action::Fail, &by(), false).await.unwrap();
    assert_eq!((done.matched, done.changed, done.refused), (2, 1, 1));
    let left = operations.find(newcomer).await.unwrap().unwrap();
    assert_eq!(left.record.state.kind(), StateKind::Unknown, "nobody had looked at it");
}

#[tokio::test]
async fn each_of_many_gets_a_change_of_its_own() {
    let once = Once::new(MemoryStore::new());
    let [settled, released] =
        [unknown(&once, "order-1", "ann").await, unknown(&once, "order-2", "ann").await];
    let changes = [
        (settled, None, Action::Settle(answer("7")), by()),
        (released, None, Action::Release { force: true }, by()),
        (OperationId::from_bytes([7; 16]), None, Action::Fail, by()),
    ];
    let operations = once.operations();
    let dry = operations.change_each(&changes, true).await.unwrap();
    assert_eq!((dry.matched, dry.changed, dry.refused, dry.sample.len()), (3, 2, 1, 2));
    assert_eq!(operations.census().await.unwrap().unknown, 2);
    let done = operations.change_each(&changes, false).await.unwrap();
    assert_eq!((done.changed, done.refused), (2, 1));
    assert!(matches!(done.refusals[0].error, OperateError::NotFound));
    let state = async |id| operations.find(id).await.unwrap().unwrap().record.state.kind();
    assert_eq!(
        [state(settled).await, state(released).await],
        [StateKind::Completed, StateKind::Released]
    );
}

#[tokio::test]
async fn a_listener_hears_the_whole_life_of_an_operation() {
    use EventKind::{Claimed, Forgotten, Replayed, Settled, Unknown};
    let once = Once::new(MemoryStore::new());
    let mut events = once.events();
    let id = unknown(&once, "order-1", "ann").await;
    once.operations().change(id, &Action::Settle(answer("7")), &by()).await.unwrap();
    for value in [7, 8] {
        let again = once.run(operation("order-1", "ann"), move |_| async move { Ok(value) });
        assert_eq!(again.await.unwrap(), Outcome::Replayed(7_u32));
    }
    once.operations().change(id, &Action::Forget, &by()).await.unwrap();
    let mut heard = Vec::new();
    for _ in 0..6 {
        let Some(Heard::Event(event)) = events.next().await else { panic!("an event") };
        assert_eq!((event.id, event.key.as_str()), (id, "order-1"));
        let is_by_hand = matches!(event.kind, Settled | Forgotten);
        assert_eq!(event.by.is_some(), is_by_hand);
        heard.push(event.kind);
    }
    assert_eq!(heard, [Claimed, Unknown, Settled, Replayed, Replayed, Forgotten]);
}

/// A clock that stands where it is put, in milliseconds.
#[derive(Clone)]
struct Stopped(Arc<AtomicI64>);

impl Clock for Stopped {
    fn wall(&self) -> StoreTime {
        StoreTime::from_ms(self.0.load(Ordering::Relaxed))
    }

    fn boot(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed).unsigned_abs())
    }
}

#[tokio::test]
async fn an_expired_operation_is_neither_listed_nor_changed() {
    let clock = Stopped(Arc::new(AtomicI64::new(1_000_000)));
    let store = MemoryStore::with_clock(clock.clone());
    let once = Once::builder(store).with_clock(clock.clone()).build();
    let policy = Policy::default().with_ttl(Duration::from_secs(1));
    let operation = operation("order-1", "ann").with_policy(policy);
    let ran = once.run(operation, |_| async { Ok::<u32, Failure>(1) }).await.unwrap();
    assert_eq!(ran, Outcome::Fresh(1));
    let operations = once.operations();
    let listed =
        async || operations.list(&OperationFilter::default(), None, 10).await.unwrap().operations;
    let before = listed().await;
    clock.0.fetch_add(1_000, Ordering::Relaxed);
    assert_eq!((before.len(), listed().await.len()), (1, 0));
    let forgotten = operations.change(before[0].id, &Action::Forget, &by()).await;
    assert!(matches!(forgotten, Err(OperateError::NotFound)), "{forgotten:?}");
    assert_eq!(operations.sweep().await.unwrap(), 1);
}
