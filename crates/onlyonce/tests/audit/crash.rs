//! A process that is killed, and a disk that fails: no change without its entry, no entry without its change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onlyonce::EventKind;
use onlyonce::clock::StoreTime;
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{KeyText, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::audit::{About, AuditOptions, Note, verify};
use onlyonce::store::sqlite::{SqliteOptions, SqliteStore};
use onlyonce::store::{Draft, Fault, Guard, Inspect, Lease, Next, Scan};

use super::lab::{all, answer};
use super::tampering::Random;

#[tokio::test]
async fn a_killed_process_leaves_records_and_entries_that_agree() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut random = Random(0xC0FFEE);
    for _ in 0..8 {
        let mut child = child(&[], &path);
        wait_for_entries(&path).await;
        tokio::time::sleep(Duration::from_millis(20 + random.below(120))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let store = opened(&path).await.expect("a killed store opens");
        agree(&store).await;
        store.close().await;
    }
}

#[tokio::test]
async fn errors_of_the_disk_leave_records_and_entries_that_agree() {
    if Command::new("strace").arg("--version").output().is_err() {
        eprintln!("skipped: there is no strace to make the disk fail");
        return;
    }
    let errors = ["fsync,fdatasync:error=EIO:when=17+9", "pwrite64:error=ENOSPC:when=60+37"];
    for error in errors {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        opened(&path).await.unwrap().close().await;
        let inject = format!("inject={error}");
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
        let mut child = child(&strace, &path);
        wait_for_entries(&path).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        // Ends the tracer; the process that it traces is ended by the file that it looks for.
        std::fs::write(path.with_extension("stop"), "").unwrap();
        child.wait().unwrap();
        let store = opened(&path).await.expect("the store opens after errors of the disk");
        assert!(agree(&store).await > 20, "{error}");
        store.close().await;
    }
}

/// Every record has the state that its entries tell; returns how many entries there are. An operation is all in one chain.
pub(crate) async fn agree(store: &impl Inspect) -> usize {
    let trail = store.audit().unwrap().trail();
    let verified = verify(trail, &[]).await.unwrap();
    assert!(verified.is_whole(), "{verified:?}");
    let mut entries = all(trail).await;
    entries.sort_by_key(|entry| (entry.writer, entry.sequence));
    let mut told: BTreeMap<OperationId, StateKind> = BTreeMap::new();
    for entry in &entries {
        let id = entry.note.id.unwrap();
        let (before, after) = match entry.note.kind {
            EventKind::Claimed => (None, Some(StateKind::Running)),
            EventKind::Executed => (Some(StateKind::Running), Some(StateKind::Completed)),
            EventKind::Unknown => (Some(StateKind::Running), Some(StateKind::Unknown)),
            EventKind::Released => (Some(StateKind::Running), None),
            kind => panic!("{kind:?} is not made here"),
        };
        assert_eq!(told.remove(&id), before, "{entry:?}");
        told.extend(after.map(|after| (id, after)));
    }
    assert_eq!(told, held(store).await, "the trail tells what the store holds");
    entries.len()
}

async fn held(store: &impl Inspect) -> BTreeMap<OperationId, StateKind> {
    let mut scan = Scan { states: StateSet::of(&StateKind::ALL), after: None, limit: 1_000 };
    let mut held = BTreeMap::new();
    loop {
        let page = store.scan(scan.clone()).await.unwrap();
        held.extend(page.records.iter().map(|(id, record)| (*id, record.state.kind())));
        scan.after = page.next;
        if scan.after.is_none() {
            return held;
        }
    }
}

async fn wait_for_entries(path: &Path) {
    let started = path.with_extension("started");
    for _ in 0..3_000 {
        if started.exists() {
            std::fs::remove_file(&started).unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the child did not start");
}

async fn opened(path: &Path) -> Option<SqliteStore> {
    for _ in 0..200 {
        let options = SqliteOptions::new().with_audit(AuditOptions::default());
        match SqliteStore::open_with(path, options).await {
            Ok(store) => return Some(store),
            Err(error) => println!("{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

fn child(before: &[&str], path: &Path) -> Child {
    let this = std::env::current_exe().expect("a test knows its own file");
    let mut words = before.iter().map(PathBuf::from).chain([this]);
    let mut command = Command::new(words.next().expect("there is at least this test"));
    command.args(words).args(["--ignored", "--exact", "crash::child_that_writes"]);
    command.env(PATH, path).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the child starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a child of the tests above"]
async fn child_that_writes() {
    let path: PathBuf = std::env::var_os(PATH).expect("the parent names the file").into();
    let store = opened(&path).await.expect("the store opens");
    let tasks: Vec<_> = (0..16).map(|_| tokio::spawn(work(store.clone()))).collect();
    std::fs::write(path.with_extension("started"), "").unwrap();
    while !path.with_extension("stop").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Claims, then settles, marks unknown or releases, and repeats what is unsure.
pub(crate) async fn work(store: impl Inspect) {
    let audit = store.audit().unwrap();
    for round in 0_u64.. {
        let draft = draft();
        let (id, token) = (draft.id, draft.token);
        let claimed = note(EventKind::Claimed, id);
        if !until_known(|| audit.claim(draft.clone(), claimed.clone())).await {
            continue;
        }
        let settled_by = onlyonce::record::SettledBy::Owner;
        let completed = Next::Completed { settled_by, response: answer("\"done\""), token: None };
        let (to, kind) = match round % 4 {
            0 => (Next::Unknown { since: None }, EventKind::Unknown),
            1 => (Next::Absent, EventKind::Released),
            _ => (completed, EventKind::Executed),
        };
        let guard = Guard::Owner { token, states: StateSet::of(&StateKind::ALL[..3]) };
        let settled = note(kind, id);
        until_known(|| audit.swap(id, guard, to.clone(), settled.clone())).await;
    }
}

/// Repeats an unsure call; whether it was done.
async fn until_known<T, F: Future<Output = Result<T, Fault>>>(call: impl Fn() -> F) -> bool {
    let mut is_on_its_way = false;
    loop {
        match call().await {
            Ok(_) => return true,
            Err(Fault::NotDone(_)) if !is_on_its_way => return false,
            Err(_) => is_on_its_way = true,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn note(kind: EventKind, id: OperationId) -> Arc<Note> {
    let about = Arc::new(About { route: "charges".into(), ..About::default() });
    Arc::new(Note { kind, id: Some(id), status: None, count: None, about })
}

pub(crate) fn draft() -> Draft {
    Draft {
        id: OperationId::from_bytes(*Token::random().as_bytes()),
        token: Token::random(),
        key: KeyText::new("key".to_owned()),
        fingerprint: Fingerprint { version: 1, canonical: [2; 32], raw: [3; 32] },
        principal: Principal::from_bytes([4; 32]),
        route: "charges".into(),
        target: "".into(),
        lease: Lease::new(Duration::from_secs(30)),
        quiet_ms: 60_000,
        ttl_ms: 86_400_000,
        not_after: StoreTime::MAX,
    }
}

const PATH: &str = "ONLYONCE_TEST_STORE";
