//! The SQLite store against other processes, and against a disk that fails under it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use onlyonce::clock::StoreTime;
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{Kept, KeyText, Response, SettledBy, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::sqlite::{SqliteOpenError, SqliteStore};
use onlyonce::store::{Draft, Fault, Guard, Lease, Next, Store, StoreError, Swap};

// threat B9
#[tokio::test]
async fn another_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let refused = child(&[], "child_that_opens", &path);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("is in use"), "{said}");
    drop(store);
    assert!(child(&[], "child_that_opens", &path).status.success());
}

// threat E3, threat E4
#[test]
fn what_was_answered_survives_errors_of_the_disk() {
    if Command::new("strace").arg("--version").output().is_err() {
        eprintln!("skipped: there is no strace to make the disk fail");
        return;
    }
    let errors = [
        "fsync,fdatasync:error=EIO:when=12",
        "fsync,fdatasync:error=EIO:when=17+9",
        "fsync,fdatasync:error=ENOSPC:when=30+31",
        "pwrite64:error=ENOSPC:when=41",
        "pwrite64:error=ENOSPC:when=60+37",
        "pwrite64:error=EIO:when=75+53",
    ];
    for error in errors {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        assert!(child(&[], "child_that_opens", &path).status.success());
        let inject = format!("inject={error}");
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
        let done = child(&strace, "child_that_writes", &path);
        let said = String::from_utf8_lossy(&done.stdout).into_owned()
            + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{error}: {said}");
        assert!(said.contains("met a fault"), "{error} was never met");
    }
}

/// Runs one of the tests below in a process of its own.
fn child(before: &[&str], name: &str, path: &Path) -> Output {
    let this = std::env::current_exe().expect("a test knows its own file");
    let mut words = before.iter().map(PathBuf::from).chain([this]);
    let mut command = Command::new(words.next().expect("there is at least this test"));
    command.args(words).args(["--ignored", "--exact", "--nocapture", name]);
    command.env(PATH, path).output().expect("the child starts")
}

#[tokio::test]
#[ignore = "a child of the tests above"]
async fn child_that_opens() {
    match SqliteStore::open(path()).await {
        Ok(_) => {}
        Err(error @ SqliteOpenError::InUse { .. }) => panic!("{}", shown(&error)),
        Err(error) => panic!("{error:?}"),
    }
}

fn shown(error: &SqliteOpenError) -> String {
    println!("{error}");
    error.to_string()
}

/// Claims and settles until each is answered for certain, then checks every one after a reopening.
#[tokio::test]
#[ignore = "a child of the tests above"]
async fn child_that_writes() {
    let store = opened().await;
    for n in 0..OPERATIONS {
        let token = claim(&store, n).await;
        settle(&store, n, token).await;
    }
    store.close().await;
    drop(store);
    let store = opened().await;
    for n in 0..OPERATIONS {
        let record = store.load(id(n)).await.unwrap().record.unwrap();
        assert_eq!(record.response().map(AsRef::as_ref), Some(&response(n)), "{n}");
    }
}

/// The disk may fail now, too.
async fn opened() -> SqliteStore {
    for _ in 0..TRIES {
        match SqliteStore::open(path()).await {
            Ok(store) => return store,
            Err(error) => println!("{error:?}"),
        }
    }
    panic!("the store does not open any more");
}

async fn claim(store: &SqliteStore, n: u32) -> Token {
    let draft = draft(n);
    let mut last = None;
    for _ in 0..TRIES {
        match store.claim(draft.clone()).await {
            Ok(seen) => {
                assert!(seen.mine, "{n}: {seen:?}");
                return draft.token;
            }
            Err(fault) => last = Some(later(fault).await),
        }
    }
    panic!("{n} was never claimed: {last:?}");
}

async fn settle(store: &SqliteStore, n: u32, token: Token) {
    let states = StateSet::of(&StateKind::ALL[..3]);
    let to = Next::Completed {
        settled_by: SettledBy::Owner,
        response: Arc::new(response(n)),
        token: None,
    };
    let mut last = None;
    for _ in 0..TRIES {
        let guard = Guard::Owner { token, states };
        match store.swap(id(n), guard, to.clone()).await {
            Ok(Swap::Done(_)) => return,
            Ok(Swap::Stale(seen)) => panic!("{n}: {seen:?}"),
            Err(fault) => last = Some(later(fault).await),
        }
    }
    panic!("{n} was never settled: {last:?}");
}

/// Anything but an error of the machine is wrong here.
async fn later(fault: Fault) -> Fault {
    assert!(matches!(fault.error(), StoreError::Unavailable(_)), "{fault:?}");
    println!("met a fault: {fault:?}");
    tokio::time::sleep(Duration::from_millis(20)).await;
    fault
}

fn path() -> PathBuf {
    std::env::var_os(PATH).expect("the parent names the file").into()
}

fn id(n: u32) -> OperationId {
    let mut bytes = [7; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    OperationId::from_bytes(bytes)
}

fn draft(n: u32) -> Draft {
    Draft {
        id: id(n),
        token: Token::random(),
        key: KeyText::new(format!("key-{n}")),
        fingerprint: Fingerprint { version: 1, canonical: [2; 32], raw: [3; 32] },
        principal: Principal::from_bytes([4; 32]),
        route: "POST /charges".into(),
        target: "api.test/charges".into(),
        lease: Lease::new(Duration::from_secs(30)),
        quiet_ms: 60_000,
        ttl_ms: 86_400_000,
        not_after: StoreTime::MAX,
    }
}

fn response(n: u32) -> Response {
    let body = format!("charge {n} {}", "x".repeat(300));
    Response {
        status: http::StatusCode::CREATED,
        headers: http::HeaderMap::new(),
        body: Kept::Bytes { body: body.into(), trailers: None },
    }
}

const PATH: &str = "ONLYONCE_TEST_STORE";
const OPERATIONS: u32 = 60;
const TRIES: usize = 500;
