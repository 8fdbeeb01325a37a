//! What clients that retry learn under faults, and the verdict over it.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use proof::client::{Answer, Connection, SendError};
use proof::tier::tiered;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::BODY;
use crate::upstream::QUICK;

/// What the clients know together.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<History>>);

/// Which gateway the connection that is open leads to.
type Open = Option<(SocketAddr, Connection)>;

impl Shared {
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap()
    }

    /// One client, which begins, repeats and retries until it is told to stop.
    pub(crate) async fn send_until(
        self,
        gateways: Vec<SocketAddr>,
        stopped: watch::Receiver<bool>,
    ) {
        let mut open = None;
        while !*stopped.borrow() {
            let key = self.history().next_key();
            self.send(&mut open, &gateways, &key).await;
        }
    }

    /// Brings what is still open to an end.
    pub(crate) async fn finish(&self, gateways: &[SocketAddr]) {
        let mut connection = None;
        for _ in 0..ROUNDS_MAX {
            let open = self.history().open.pop();
            match open {
                Some(key) => self.send(&mut connection, gateways, &key).await,
                None => return,
            }
        }
        panic!("{} keys never ended", self.history().open.len());
    }

    /// Every answer that was acknowledged is still the same, whichever gateway is asked.
    pub(crate) async fn reread_everything(&self, gateways: &[SocketAddr]) {
        let acknowledged = self.history().acknowledged.clone();
        let mut connections = Vec::new();
        for gateway in gateways {
            connections.push(Connection::open(*gateway).await.unwrap());
        }
        for (key, first) in acknowledged {
            let any = fastrand::usize(..connections.len());
            let again = connections[any].post(QUICK, &key, BODY).await.unwrap();
            assert!(again.is_replay(), "{key}: {again:?}");
            assert_eq!((again.status, again.body), (first.status, first.body), "{key}");
            self.history().reread += 1;
        }
    }

    /// One request to any of the gateways; what it teaches is noted.
    async fn send(&self, open: &mut Open, gateways: &[SocketAddr], key: &str) {
        let was_answered = self.history().sent(key);
        let answer = match timeout(CLIENT_PATIENCE, post(open, gateways, key)).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(elapsed.into()),
        };
        let must_wait = self.history().learn(key, was_answered, answer);
        if must_wait {
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// On the connection that is open, else on a new one.
async fn post(open: &mut Open, gateways: &[SocketAddr], key: &str) -> Result<Answer, SendError> {
    let address = gateways[fastrand::usize(..gateways.len())];
    let mut connection = match open.take() {
        Some((to, connection)) if to == address => connection,
        _ => Connection::open(address).await?,
    };
    let answer = connection.post(QUICK, key, BODY).await?;
    *open = Some((address, connection));
    Ok(answer)
}

const ROUNDS_MAX: usize = 100_000;
/// The client's pause before it asks again, and not a wait for anything.
const RETRY_PAUSE: Duration = Duration::from_millis(2);
/// How long a client waits before it hangs up and asks again.
const CLIENT_PATIENCE: Duration = Duration::from_secs(8);

#[derive(Default)]
pub(crate) struct History {
    /// Whether an unknown outcome may still be settled: its owner is not dead, only late.
    pub(crate) owners_live: bool,
    issued: usize,
    is_fault: bool,
    /// How many requests with the key have no answer yet.
    in_flight: HashMap<String, usize>,
    /// In flight during a fault.
    overlapped: HashSet<String>,
    /// To be sent again.
    open: Vec<String>,
    /// The first whole answer of each key.
    acknowledged: HashMap<String, Answer>,
    unknown: HashSet<String>,
    replays: usize,
    refusals: usize,
    pub(crate) store_refusals: usize,
    reread: usize,
}

/// One of the first few keys, in no order.
fn any_of<T>(keys: &HashMap<String, T>) -> Option<&String> {
    keys.keys().nth(fastrand::usize(..keys.len().clamp(1, 50)))
}

impl History {
    /// Whatever is in flight from now on may end unknown.
    pub(crate) fn fault_begins(&mut self) {
        self.is_fault = true;
        self.overlapped.extend(self.in_flight.keys().cloned());
    }

    pub(crate) fn fault_ends(&mut self) {
        self.overlapped.extend(self.in_flight.keys().cloned());
        self.is_fault = false;
    }

    /// How many operations have a request under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How many operations have their answer.
    pub(crate) fn completed(&self) -> usize {
        self.acknowledged.len()
    }

    /// Whether its answer is known already.
    fn sent(&mut self, key: &str) -> bool {
        *self.in_flight.entry(key.to_owned()).or_default() += 1;
        if self.is_fault {
            self.overlapped.insert(key.to_owned());
        }
        self.acknowledged.contains_key(key)
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
    fn learn(&mut self, key: &str, was_answered: bool, answer: Result<Answer, SendError>) -> bool {
        self.left_flight(key);
        let Ok(answer) = answer else {
            self.open.push(key.to_owned());
            return true;
        };
        match (answer.status.as_u16(), answer.problem().as_deref()) {
            (201, None) => self.acknowledge(key, answer),
            (409, Some("idempotency_outcome_unknown")) => {
                assert!(!was_answered, "{key} was answered before this was sent");
                // A slow word may come after a newer one.
                if !self.acknowledged.contains_key(key) {
                    self.unknown.insert(key.to_owned());
                }
            }
            (409, Some("idempotency_in_progress")) => {
                self.refusals += 1;
                self.open.push(key.to_owned());
                return true;
            }
            // The store was away when the answer had to be written, or when the key had to be claimed.
            (502, Some("idempotency_outcome_unknown")) if self.owners_live => {
                self.open.push(key.to_owned());
                return true;
            }
            (503, Some("idempotency_store_unavailable" | "overloaded")) if self.owners_live => {
                self.store_refusals += 1;
                self.open.push(key.to_owned());
                return true;
            }
            other => panic!("{key}: {other:?}"),
        }
        false
    }

    fn acknowledge(&mut self, key: &str, answer: Answer) {
        let was_unknown = self.unknown.remove(key);
        assert!(self.owners_live || !was_unknown, "{key} was unknown");
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

    /// Asks once more for what was unknown when it was asked last.
    pub(crate) fn reopen_unknown(&mut self) {
        self.open.extend(self.unknown.drain());
    }

    pub(crate) fn judge(&self, executions: &HashMap<String, Vec<Bytes>>) {
        for (key, answers) in executions {
            assert_eq!(answers.len(), 1, "{key} was executed {} times", answers.len());
        }
        for (key, answer) in &self.acknowledged {
            assert_eq!(executions.get(key), Some(&vec![answer.body.clone()]), "{key}");
        }
        let stray: Vec<_> = self.unknown.difference(&self.overlapped).collect();
        assert!(stray.is_empty(), "unknown without a fault: {stray:?}");
        let unsent = self.unknown.iter().filter(|key| !executions.contains_key(*key));
        println!(
            "{} operations, {} completed, {} unknown ({} of them not executed), 0 twice",
            self.issued,
            self.acknowledged.len(),
            self.unknown.len(),
            unsent.count(),
        );
    }

    /// Whether there was enough of everything for the verdict to mean something: names, and counts in the full
    /// tier.
    pub(crate) fn judge_counts(&self, least: &[(&str, usize)]) {
        let others = self.issued - self.unknown.len();
        let completed = self.acknowledged.len();
        assert!(completed * 100 >= others * 99, "{completed} of {others} completed");
        assert_eq!(self.reread, completed);
        for (what, least) in least {
            let seen = match *what {
                "unknown" => self.unknown.len(),
                "replays" => self.replays,
                "refusals in flight" => self.refusals,
                "refusals of a store that is away" => self.store_refusals,
                other => panic!("{other} is not counted"),
            };
            println!("{seen} {what}");
            assert!(seen >= tiered(*least), "only {seen} {what}");
        }
    }
}
