//! Answers and keys under a seal, in an engine: what the file has, what a lost key means, and what erasing leaves.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce::policy::{Absent, Recovery};
use onlyonce::record::{Kept, KeyText, NotKept, Record, State, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal, Secret};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::sealed::SealKey;
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::store::{Guard, Inspect, Maintain, Next, Scan, Store, Swap, Watch};
use onlyonce::{
    Action, By, Finding, Once, OnceError, Operation, OperationFilter, Outcome, Policy, Question,
    Reconciler, StoredOperation,
};
use support::{Answer, caller, post};
use tower::ServiceExt;

fn key(byte: u8) -> SealKey {
    SealKey::new([byte; 32])
}

fn engine(store: impl Watch + Inspect, keys: &[u8]) -> Once {
    Once::builder(store).with_seal(keys.iter().map(|byte| key(*byte)).collect()).build()
}

/// The answer is the number of the run, after a canary.
async fn run(
    once: &Once,
    text: &str,
    runs: &Arc<AtomicUsize>,
) -> Result<Outcome<String>, OnceError> {
    let operation = Operation::new("mint", Principal::of("user", b"canary-user"), text).unwrap();
    let runs = runs.clone();
    let work = move |_| async move {
        Ok(format!("canary-answer-{}", runs.fetch_add(1, Ordering::SeqCst)))
    };
    once.run(operation.with_payload(&"canary-request").unwrap(), work).await
}

/// The first of its key.
async fn first(once: &Once, text: &str, runs: &Arc<AtomicUsize>) {
    assert!(matches!(run(once, text, runs).await.unwrap(), Outcome::Fresh(_)));
}

async fn only(once: &Once) -> StoredOperation {
    let listed = once.operations().list(&OperationFilter::default(), None, 10).await.unwrap();
    assert_eq!(listed.operations.len(), 1);
    listed.operations.into_iter().next().unwrap()
}

/// How often the word is in the files of the store.
fn found(folder: &Path, word: &str) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let bytes = files.map(|file| std::fs::read(file).unwrap());
    bytes
        .map(|bytes| bytes.windows(word.len()).filter(|part| *part == word.as_bytes()).count())
        .sum()
}

// R184, threat H1; without the seal the words are there, so that the search is known to find them
#[tokio::test]
async fn nothing_that_was_sealed_is_in_the_files() {
    for (keys, is_hidden) in [(&[][..], false), (&[1], true)] {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("s.db")).await.unwrap();
        let once = engine(store.clone(), keys);
        let runs = Arc::default();
        assert_eq!(
            run(&once, "canary-key", &runs).await.unwrap(),
            Outcome::Fresh("canary-answer-0".into())
        );
        for word in ["canary-key", "canary-answer"] {
            assert_eq!(found(folder.path(), word) == 0, is_hidden, "{word} with {keys:?}");
        }
        for word in ["canary-request", "canary-user"] {
            assert_eq!(found(folder.path(), word), 0, "{word} is never stored");
        }
        // An operator finds it by its key all the same.
        let by_key =
            OperationFilter { key: Some("canary-key".into()), ..OperationFilter::default() };
        let listed = once.operations().list(&by_key, None, 10).await.unwrap().operations;
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].record.key.as_sent(), Some("canary-key"));
    }
}

// R184, threat H2
#[tokio::test]
async fn an_answer_whose_key_is_lost_is_not_kept_and_nothing_runs_again() {
    let (store, runs) = (MemoryStore::new(), Arc::default());
    first(&engine(store.clone(), &[1]), "order-1", &runs).await;
    for keys in [&[2][..], &[]] {
        let once = engine(store.clone(), keys);
        assert!(matches!(run(&once, "order-1", &runs).await, Err(OnceError::NotKept)), "{keys:?}");
        let other =
            Operation::new("mint", Principal::of("user", b"canary-user"), "order-1").unwrap();
        let other = other.with_payload(&"another request").unwrap();
        let reused = once.run(other, |_| async { Ok("never".to_owned()) }).await.unwrap();
        assert_eq!(reused, Outcome::Reused, "the request is still compared");
        let operation = only(&once).await;
        assert_eq!(operation.record.key.shown(), "(sealed)");
        assert_eq!(operation.record.response().unwrap().body, Kept::No(NotKept::Unopened));
        assert!(once.unopened() > 0);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let again = run(&engine(store, &[2, 1]), "order-1", &runs).await.unwrap();
    assert_eq!(again, Outcome::Replayed("canary-answer-0".into()), "the key was found again");
}

// R184
#[tokio::test]
async fn what_was_stored_before_the_seal_is_replayed() {
    let (store, runs) = (MemoryStore::new(), Arc::default());
    first(&Once::new(store.clone()), "order-1", &runs).await;
    let once = engine(store.clone(), &[1]);
    let again = run(&once, "order-1", &runs).await.unwrap();
    assert_eq!(again, Outcome::Replayed("canary-answer-0".into()));
    first(&once, "order-2", &runs).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

// R184, threat H3: whoever can write to the store, checksums and all, exchanges the answers of two operations
#[tokio::test]
async fn answers_that_were_exchanged_do_not_open() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("s.db")).await.unwrap();
    let runs = Arc::default();
    let once = engine(store.clone(), &[1]);
    first(&once, "order-1", &runs).await;
    first(&once, "order-2", &runs).await;
    exchange(&store).await;
    let fresh = engine(store, &[1]);
    for text in ["order-1", "order-2"] {
        assert!(matches!(run(&fresh, text, &runs).await, Err(OnceError::NotKept)), "{text}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2, "nothing ran again");
}

async fn exchange(store: &SqliteStore) {
    let scan = Scan { states: StateSet::of(&[StateKind::Completed]), after: None, limit: 9 };
    let records = store.scan(scan).await.unwrap().records;
    let [(one, first), (two, second)] = &records[..] else { panic!("two operations") };
    for (id, record, other) in [(one, first, second), (two, second, first)] {
        let State::Completed { expires_at, settled_by, .. } = record.state else { panic!() };
        let response = other.response().unwrap().clone();
        assert!(matches!(response.body, Kept::Sealed(_)), "it is sealed");
        let state = State::Completed { expires_at, settled_by, response };
        put(store, *id, record, Record { state, ..record.clone() }).await;
    }
}

/// Writes a record as it is: first under another token, because a write never keeps the revision.
async fn put(store: &SqliteStore, id: OperationId, read: &Record, to: Record) {
    let between = Record { token: Token::random(), ..to.clone() };
    for (read, to) in [(read, between.clone()), (&between, to)] {
        let guard = Guard::Unchanged(read.revision());
        let swap = store.swap(id, guard, Next::Replaced(Box::new(to))).await.unwrap();
        assert!(matches!(swap, Swap::Done(_)));
    }
}

// R184, threat H4
#[tokio::test]
async fn an_erased_operation_keeps_its_outcome_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("s.db")).await.unwrap();
    let (once, runs) = (Once::new(store.clone()), Arc::default());
    first(&once, "canary-key", &runs).await;
    let before = only(&once).await;
    let by = By::new("ann", "the customer asked for it").unwrap();
    once.operations().change(before.id, &Action::Erase, &by).await.unwrap();
    let after = only(&once).await;
    assert_eq!(after.record.expires_at(), before.record.expires_at());
    assert_eq!(after.record.fingerprint, before.record.fingerprint);
    assert_eq!(after.record.key, KeyText::erased());
    assert_eq!(after.record.response().unwrap().body, Kept::No(NotKept::Erased));
    for once in [&once, &Once::new(store.clone())] {
        assert!(matches!(run(once, "canary-key", &runs).await, Err(OnceError::NotKept)));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    once.operations().change(before.id, &Action::Erase, &by).await.unwrap();
    store.close().await;
    for word in ["canary-key", "canary-answer"] {
        assert_eq!(found(folder.path(), word), 0, "{word} is in the file");
    }
}

// threat G15
#[tokio::test]
async fn with_a_secret_neither_caller_nor_request_can_be_computed() {
    let records = [None, Some("one"), Some("two")].map(|secret| async move {
        let builder = Once::builder(MemoryStore::new());
        let once = match secret {
            Some(secret) => builder.with_secret(Secret::new(secret)),
            None => builder,
        };
        let (once, runs) = (once.build(), Arc::default());
        first(&once, "order-1", &runs).await;
        let again = run(&once, "order-1", &runs).await.unwrap();
        assert_eq!(again, Outcome::Replayed("canary-answer-0".into()));
        only(&once).await.record
    });
    let [plain, one, two] = futures_util::future::join_all(records).await.try_into().unwrap();
    assert_eq!(plain.principal, Principal::of("user", b"canary-user"));
    assert_eq!([plain.fingerprint.version, one.fingerprint.version], [1, 2]);
    for (a, b) in [(&plain, &one), (&plain, &two), (&one, &two)] {
        assert_ne!(a.principal, b.principal);
        assert_ne!(a.fingerprint.raw, b.fingerprint.raw);
        assert_ne!(a.fingerprint.canonical, b.fingerprint.canonical);
    }
}

/// Has never heard of any operation, and notes the keys that it is asked about.
#[derive(Clone, Default)]
struct NeverHeard {
    asks_by_itself: bool,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for NeverHeard {
    fn ask<'a>(
        &'a self,
        question: Question<'a>,
    ) -> Pin<Box<dyn Future<Output = Finding> + Send + 'a>> {
        self.keys.lock().unwrap().push(question.key.to_owned());
        Box::pin(async { Finding::Absent })
    }

    fn asks_by_itself(&self) -> bool {
        self.asks_by_itself
    }
}

/// A service that never answers, whose operations are released when nobody has heard of them.
fn silent(once: &Once, reconciler: &NeverHeard) -> axum::Router {
    let short = Duration::from_millis(20);
    let policy = Policy::default().with_lease(short).with_upstream_timeout(short);
    let recovery =
        Recovery::Reconcile { absent: Absent::Release, quiet: Duration::from_millis(60) };
    let layer = once.layer(caller, policy.with_recovery(recovery));
    let handler = || std::future::pending::<StatusCode>();
    axum::Router::new().fallback(handler).layer(layer.with_reconciler(reconciler.clone()))
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.unwrap_or_else(|_| panic!("waited in vain for {what}"));
}

// R184, threat H2: to ask about the sealed text would be answered "absent", and the operation would run again
#[tokio::test]
async fn no_question_is_asked_about_a_key_that_does_not_open() {
    let store = MemoryStore::new();
    let (first, never) = (engine(store.clone(), &[1]), NeverHeard::default());
    let send = async |app: axum::Router| {
        Answer::read(app.oneshot(post("order-1", "{}")).await.unwrap()).await.status
    };
    assert_eq!(send(silent(&first, &never)).await, StatusCode::GATEWAY_TIMEOUT);
    let asking = || NeverHeard { asks_by_itself: true, ..NeverHeard::default() };
    // Both look every five seconds, the one without the key first.
    let (lost, by_lost) = (engine(store.clone(), &[2]), asking());
    let app = silent(&lost, &by_lost);
    let (found, by_found) = (engine(store, &[2, 1]), asking());
    let _app = silent(&found, &by_found);
    until("a question", || !by_found.keys.lock().unwrap().is_empty()).await;
    assert_eq!(by_found.keys.lock().unwrap()[0], "order-1");
    assert!(by_lost.keys.lock().unwrap().is_empty(), "it does not know what to ask");
    assert!(lost.unopened() > 0, "it has looked");
    assert_eq!(send(app).await, StatusCode::CONFLICT);
    assert_eq!(*by_lost.keys.lock().unwrap(), ["order-1"], "a retry brings the key itself");
}
