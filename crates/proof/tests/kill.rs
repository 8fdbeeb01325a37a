//! `kill -9` of a service under load: nothing twice, nothing acknowledged lost, unknown only where it must.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proof::client::{self, Answer};
use proof::ledger::Ledger;
use proof::oracle::Oracle;
use proof::tier::tiered;
use tokio::sync::watch;
use tokio::task::JoinSet;

const CLIENTS: usize = 32;
const IN_FLIGHT_MIN: usize = 5;

/// Everything that the clients know.
#[derive(Default)]
struct History {
    /// Sent, and no answer yet.
    in_flight: HashSet<String>,
    /// In flight at a kill.
    overlapped: HashSet<String>,
    /// The first whole answer of each key.
    acknowledged: HashMap<String, Answer>,
    unknown: HashSet<String>,
    replays: usize,
    issued: usize,
    open: Vec<String>,
}

type Shared = Arc<Mutex<History>>;

// R80, R100, R103, R104; threats A1 to A8, A14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_execute_nothing_twice_and_lose_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let history = Shared::default();
    let kills = tiered(100);
    let mut in_flight_at_kills = Vec::new();
    for _ in 0..kills {
        let mut ledger = Ledger::start(env!("CARGO_BIN_EXE_ledger"), folder.path()).unwrap();
        in_flight_at_kills.push(load_until_killed(&mut ledger, &history).await);
    }
    let ledger = Ledger::start(env!("CARGO_BIN_EXE_ledger"), folder.path()).unwrap();
    finish(ledger.address, &history).await;
    reread_everything(ledger.address, &history).await;
    judge(&history.lock().unwrap(), &Oracle::executions(&folder.path().join("oracle")).unwrap());
    let (least, most) = (in_flight_at_kills.iter().min(), in_flight_at_kills.iter().max());
    println!("{kills} kills, {least:?} to {most:?} in flight at each");
}

/// Clients send until the service is killed among them; how many were in flight then.
async fn load_until_killed(ledger: &mut Ledger, history: &Shared) -> usize {
    let (stop, stopped) = watch::channel(false);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(send_until(ledger.address, history.clone(), stopped.clone()));
    }
    tokio::time::sleep(Duration::from_millis(fastrand::u64(20..120))).await;
    let in_flight = kill_among(ledger, history).await;
    stop.send_replace(true);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    in_flight
}

async fn kill_among(ledger: &mut Ledger, history: &Shared) -> usize {
    let waiting = async {
        while history.lock().unwrap().in_flight.len() < IN_FLIGHT_MIN {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("there is load");
    let before = history.lock().unwrap().in_flight.clone();
    ledger.kill().unwrap();
    let mut history = history.lock().unwrap();
    let overlapped: Vec<_> =
        before.iter().cloned().chain(history.in_flight.iter().cloned()).collect();
    history.overlapped.extend(overlapped);
    before.len()
}

/// One client: retries what is open, else begins anew; until told to stop.
async fn send_until(address: SocketAddr, history: Shared, stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        let key = next_key(&history);
        let retry_later = send_once(address, &history, &key).await;
        if retry_later {
            history.lock().unwrap().open.push(key);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A key that is open; or an old one, to see its replay; or a new one.
fn next_key(history: &Shared) -> String {
    let mut history = history.lock().unwrap();
    if let Some(key) = history.open.pop() {
        return key;
    }
    if fastrand::u8(..) < 25 && !history.acknowledged.is_empty() {
        let nth = fastrand::usize(..history.acknowledged.len().min(50));
        return history.acknowledged.keys().nth(nth).unwrap().clone();
    }
    history.issued += 1;
    format!("operation-{:08}-{:016x}", history.issued, fastrand::u64(..))
}

/// Whether the key must be sent again.
async fn send_once(address: SocketAddr, history: &Shared, key: &str) -> bool {
    history.lock().unwrap().in_flight.insert(key.to_owned());
    let answer = client::post(address, "/charges", key, "{\"amount\":1}").await;
    let mut history = history.lock().unwrap();
    history.in_flight.remove(key);
    match answer {
        Err(_) => true,
        Ok(answer) => history.learn(key, answer),
    }
}

impl History {
    fn learn(&mut self, key: &str, answer: Answer) -> bool {
        match (answer.status.as_u16(), answer.problem().as_deref()) {
            (201, None) => {
                self.replays += usize::from(answer.is_replay());
                let first =
                    self.acknowledged.entry(key.to_owned()).or_insert_with(|| answer.clone());
                assert_eq!(first.body, answer.body, "two answers for {key}");
                assert!(!self.unknown.contains(key), "{key} was unknown, and nobody settled it");
                false
            }
            (409, Some("idempotency_outcome_unknown")) => {
                assert!(
                    !self.acknowledged.contains_key(key),
                    "{key} was answered, and is unknown now"
                );
                self.unknown.insert(key.to_owned());
                false
            }
            (409, Some("idempotency_in_progress")) => true,
            other => panic!("{key}: {other:?}"),
        }
    }
}

/// Brings what is still open to an end.
async fn finish(address: SocketAddr, history: &Shared) {
    for _ in 0..1_000 {
        let open = std::mem::take(&mut history.lock().unwrap().open);
        if open.is_empty() {
            return;
        }
        for key in open {
            if send_once(address, history, &key).await {
                history.lock().unwrap().open.push(key);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    panic!("{} keys never ended", history.lock().unwrap().open.len());
}

async fn reread_everything(address: SocketAddr, history: &Shared) {
    let acknowledged = history.lock().unwrap().acknowledged.clone();
    for (key, first) in acknowledged {
        let again = client::post(address, "/charges", &key, "{\"amount\":1}").await.unwrap();
        assert!(again.is_replay(), "{key}: {again:?}");
        assert_eq!((again.status, again.body), (first.status, first.body), "{key}");
        history.lock().unwrap().replays += 1;
    }
}

fn judge(history: &History, executions: &HashMap<String, usize>) {
    let twice: Vec<_> = executions.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "executed twice: {twice:?}");
    for key in history.acknowledged.keys() {
        assert_eq!(executions.get(key), Some(&1), "{key} was answered without being executed");
    }
    let stray: Vec<_> = history.unknown.difference(&history.overlapped).collect();
    assert!(stray.is_empty(), "unknown without a kill: {stray:?}");
    let others = history.issued - history.unknown.len();
    let completed = history.acknowledged.len();
    assert!(completed * 100 >= others * 99, "{completed} of {others} completed");
    assert!(history.unknown.len() >= tiered(50), "only {} unknown", history.unknown.len());
    assert!(history.replays >= tiered(200), "only {} replays", history.replays);
    println!(
        "{} operations, {completed} completed, {} unknown, {} replays, 0 twice",
        history.issued,
        history.unknown.len(),
        history.replays,
    );
}
