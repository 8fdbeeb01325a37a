//! `kill -9` of the gateway under load: nothing twice, nothing acknowledged lost, unknown only where it must.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use proof::client::{Answer, Connection, SendError};
use proof::tier::tiered;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::gateway::Gateway;
use crate::upstream::{QUICK, Upstream};
use crate::{BODY, until};

const CLIENTS: usize = 64;
const EXECUTING_MIN: usize = 5;

// R55, R58, R64, R80, R100, R103, R104; threats A1 to A8, A14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_execute_nothing_twice_and_lose_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let shared = Shared::default();
    let mut executing_at_kills = Vec::new();
    for _ in 0..tiered(50) {
        let mut gateway = Gateway::start(folder.path(), upstream.address).await;
        executing_at_kills.push(load_until_killed(&mut gateway, &upstream, &shared).await);
    }
    let gateway = Gateway::start(folder.path(), upstream.address).await;
    finish(gateway.address, &shared).await;
    reread_everything(gateway.address, &shared).await;
    let history = shared.history();
    history.judge(&upstream.all_executions());
    history.judge_counts();
    let (least, most) = (executing_at_kills.iter().min(), executing_at_kills.iter().max());
    let kills = executing_at_kills.len();
    println!("{kills} kills, {least:?} to {most:?} executing at each");
}

/// Clients send until the gateway is killed among them; how many operations were executing then.
async fn load_until_killed(gateway: &mut Gateway, upstream: &Upstream, shared: &Shared) -> usize {
    let (stop, stopped) = watch::channel(false);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(send_until(gateway.address, shared.clone(), stopped.clone()));
    }
    // A random moment, not a wait for anything.
    sleep(Duration::from_millis(fastrand::u64(50..600))).await;
    until("load", || upstream.executing() >= EXECUTING_MIN).await;
    let executing = upstream.executing();
    shared.history().note_overlap();
    gateway.kill().await;
    shared.history().note_overlap();
    stop.send_replace(true);
    clients.join_all().await;
    executing
}

/// One client, which begins, repeats and retries until it is told to stop.
async fn send_until(address: SocketAddr, shared: Shared, stopped: watch::Receiver<bool>) {
    let mut connection = None;
    while !*stopped.borrow() {
        let key = shared.history().next_key();
        shared.send(&mut connection, address, &key).await;
    }
}

/// Brings what is still open to an end.
async fn finish(address: SocketAddr, shared: &Shared) {
    let mut connection = None;
    for _ in 0..ROUNDS_MAX {
        let open = shared.history().open.pop();
        match open {
            Some(key) => shared.send(&mut connection, address, &key).await,
            None => return,
        }
    }
    panic!("{} keys never ended", shared.history().open.len());
}

const ROUNDS_MAX: usize = 100_000;

/// Every answer that was acknowledged is still the same.
async fn reread_everything(address: SocketAddr, shared: &Shared) {
    let acknowledged = shared.history().acknowledged.clone();
    let mut connection = Connection::open(address).await.unwrap();
    for (key, first) in acknowledged {
        let again = connection.post(QUICK, &key, BODY).await.unwrap();
        assert!(again.is_replay(), "{key}: {again:?}");
        assert_eq!((again.status, again.body), (first.status, first.body), "{key}");
        shared.history().reread += 1;
    }
}

/// What the clients know together.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<History>>);

impl Shared {
    fn history(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap()
    }

    /// One request; what it teaches is noted.
    async fn send(&self, connection: &mut Option<Connection>, address: SocketAddr, key: &str) {
        *self.history().in_flight.entry(key.to_owned()).or_default() += 1;
        let answer = post(connection, address, key).await;
        let must_wait = self.history().learn(key, answer);
        if must_wait {
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// The client's pause before it asks again, and not a wait for anything.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// On the connection that is open, else on a new one.
async fn post(
    open: &mut Option<Connection>,
    address: SocketAddr,
    key: &str,
) -> Result<Answer, SendError> {
    let mut connection = match open.take() {
        Some(connection) => connection,
        None => Connection::open(address).await?,
    };
    let answer = connection.post(QUICK, key, BODY).await?;
    *open = Some(connection);
    Ok(answer)
}

#[derive(Default)]
struct History {
    issued: usize,
    /// How many requests with the key have no answer yet.
    in_flight: HashMap<String, usize>,
    /// In flight at a kill.
    overlapped: HashSet<String>,
    /// To be sent again.
    open: Vec<String>,
    /// The first whole answer of each key.
    acknowledged: HashMap<String, Answer>,
    unknown: HashSet<String>,
    replays: usize,
    refusals: usize,
    reread: usize,
}

/// One of the first few keys, in no order.
fn any_of<T>(keys: &HashMap<String, T>) -> Option<&String> {
    keys.keys().nth(fastrand::usize(..keys.len().clamp(1, 50)))
}

impl History {
    fn note_overlap(&mut self) {
        self.overlapped.extend(self.in_flight.keys().cloned());
    }

    /// A key that was answered; or one that is under way; or one that is open; or a new one.
    fn next_key(&mut self) -> String {
        let again = match fastrand::u8(..100) {
            0..10 => any_of(&self.acknowledged),
            10..35 => any_of(&self.in_flight),
            _ => None,
        };
        if let Some(key) = again.cloned().or_else(|| self.open.pop()) {
            return key;
        }
        self.issued += 1;
        format!("operation-{:08}-{:016x}", self.issued, fastrand::u64(..))
    }

    /// Whether the client must wait before it asks again.
    fn learn(&mut self, key: &str, answer: Result<Answer, SendError>) -> bool {
        self.left_flight(key);
        let Ok(answer) = answer else {
            self.open.push(key.to_owned());
            return true;
        };
        match (answer.status.as_u16(), answer.problem().as_deref()) {
            (201, None) => self.acknowledge(key, answer),
            (409, Some("idempotency_outcome_unknown")) => {
                assert!(!self.acknowledged.contains_key(key), "{key} was answered");
                self.unknown.insert(key.to_owned());
            }
            (409, Some("idempotency_in_progress")) => {
                self.refusals += 1;
                self.open.push(key.to_owned());
                return true;
            }
            other => panic!("{key}: {other:?}"),
        }
        false
    }

    fn acknowledge(&mut self, key: &str, answer: Answer) {
        assert!(!self.unknown.contains(key), "{key} was unknown");
        self.replays += usize::from(answer.is_replay());
        let first = self.acknowledged.entry(key.to_owned());
        let first = first.or_insert_with(|| answer.clone());
        assert_eq!(first.body, answer.body, "two answers for {key}");
    }

    fn left_flight(&mut self, key: &str) {
        let count = self.in_flight.get_mut(key).expect("it was sent");
        *count -= 1;
        if *count == 0 {
            self.in_flight.remove(key);
        }
    }

    fn judge(&self, executions: &HashMap<String, Vec<Bytes>>) {
        for (key, answers) in executions {
            assert_eq!(answers.len(), 1, "{key} was executed {} times", answers.len());
        }
        for (key, answer) in &self.acknowledged {
            assert_eq!(executions.get(key), Some(&vec![answer.body.clone()]), "{key}");
        }
        let stray: Vec<_> = self.unknown.difference(&self.overlapped).collect();
        assert!(stray.is_empty(), "unknown without a kill: {stray:?}");
        let unsent = self.unknown.iter().filter(|key| !executions.contains_key(*key));
        println!(
            "{} operations, {} completed, {} unknown ({} of them not executed), 0 twice",
            self.issued,
            self.acknowledged.len(),
            self.unknown.len(),
            unsent.count(),
        );
    }

    /// Whether there was enough of everything for the verdict to mean something.
    fn judge_counts(&self) {
        let others = self.issued - self.unknown.len();
        let completed = self.acknowledged.len();
        assert!(completed * 100 >= others * 99, "{completed} of {others} completed");
        assert_eq!(self.reread, completed);
        for (what, seen, least) in [
            ("unknown", self.unknown.len(), tiered(50)),
            ("replays", self.replays, tiered(200)),
            ("refusals in flight", self.refusals, tiered(200)),
        ] {
            println!("{seen} {what}");
            assert!(seen >= least, "only {seen} {what}");
        }
    }
}
