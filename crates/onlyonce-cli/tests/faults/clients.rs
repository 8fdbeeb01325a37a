//! Clients that begin, repeat and retry, and note all that they see.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::Request;
use proof::client::{Answer, Connection, SendError};
use proof::history::{History, now_ns};
use proof::tier::tiered;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::operation::{Class, Operation, digest};

/// What the clients know together.
pub(crate) struct Clients {
    pub(crate) history: History,
    /// Names and addresses.
    gateways: Vec<(&'static str, SocketAddr)>,
    known: Mutex<Known>,
    processes: AtomicUsize,
    /// Tells the keys of this run apart from those of others.
    run: u64,
}

#[derive(Default)]
struct Known {
    issued: usize,
    attempts: HashMap<Operation, u64>,
    in_flight: HashMap<Operation, usize>,
    /// To be sent again, not before a moment.
    open: VecDeque<(u64, Operation)>,
    answered: Vec<Operation>,
    /// The same, to find them.
    seen: HashSet<Operation>,
    unknown: HashSet<Operation>,
}

/// Clients at work. They end when told to.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Load {
    pub(crate) fn start(clients: &Arc<Clients>, count: usize) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            tasks.spawn(clients.clone().send_until(stopped.clone()));
        }
        Self { stop, tasks }
    }

    pub(crate) async fn end(self) {
        self.stop.send_replace(true);
        self.tasks.join_all().await;
    }
}

impl Clients {
    pub(crate) fn new(folder: &Path, gateways: Vec<(&'static str, SocketAddr)>) -> Arc<Self> {
        Arc::new(Self {
            history: History::create(&folder.join("history")).unwrap(),
            gateways,
            known: Mutex::default(),
            processes: AtomicUsize::new(0),
            run: fastrand::u64(..),
        })
    }

    /// How many requests have no answer yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.known().in_flight.values().sum()
    }

    /// How many operations were answered. Further answers do not count: a gateway has them in memory, also when its store is
    /// down.
    pub(crate) fn completed(&self) -> usize {
        self.known().answered.len()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    fn client(&self) -> Client<'_> {
        let nth = self.processes.fetch_add(1, Ordering::SeqCst);
        Client { clients: self, process: format!("client-{nth}"), connections: HashMap::new() }
    }

    async fn send_until(self: Arc<Self>, stopped: watch::Receiver<bool>) {
        let mut client = self.client();
        while !*stopped.borrow() {
            let operation = self.known().next(self.run);
            if client.send(&operation).await == "unavailable" {
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Brings to an end what is open, asks again for what was unknown, and reads every answer once more.
    pub(crate) async fn finish(self: &Arc<Self>, settle: Duration) {
        let settle = u64::try_from(settle.as_nanos()).unwrap();
        self.history.note(json!({"kind": "quiet", "settle": settle}));
        self.drain().await;
        let unknown = std::mem::take(&mut self.known().unknown);
        self.known().open.extend(unknown.into_iter().map(|operation| (0, operation)));
        self.drain().await;
        let mut answered = std::mem::take(&mut self.known().answered);
        fastrand::shuffle(&mut answered);
        answered.truncate(tiered(REREAD_MAX));
        self.known().open.extend(answered.into_iter().map(|operation| (0, operation)));
        self.drain().await;
    }

    /// Until nothing is open.
    async fn drain(self: &Arc<Self>) {
        let drainers = (0..DRAINERS).map(|_| {
            let clients = self.clone();
            async move {
                let mut client = clients.client();
                for _ in 0..ROUNDS_MAX {
                    let due = clients.known().due();
                    match due {
                        Some(operation) => {
                            client.send(&operation).await;
                        }
                        None if clients.known().is_idle() => return,
                        None => sleep(RETRY_PAUSE).await,
                    }
                }
                panic!("{} operations never ended", clients.known().open.len());
            }
        });
        drainers.collect::<JoinSet<_>>().join_all().await;
    }
}

impl Known {
    /// One that was answered, or its key for something else; or one that is under way; or one that is open; or a new one.
    fn next(&mut self, run: u64) -> Operation {
        let again = match fastrand::u8(..100) {
            0..6 => fastrand::choice(&self.answered).cloned(),
            6..9 => fastrand::choice(&self.answered).map(Operation::of_other_content),
            9..25 => fastrand::choice(self.in_flight.keys().take(DUPLICATED_MAX))
                .filter(|operation| !self.unknown.contains(*operation))
                .cloned(),
            _ => None,
        };
        if let Some(operation) = again.or_else(|| self.due()) {
            return operation;
        }
        self.issued += 1;
        Operation::nth(self.issued, run)
    }

    /// One that is open, if its time has come.
    fn due(&mut self) -> Option<Operation> {
        let (not_before, _) = self.open.front()?;
        if *not_before > now_ns() {
            return None;
        }
        self.open.pop_front().map(|(_, operation)| operation)
    }

    fn is_idle(&self) -> bool {
        self.open.is_empty() && self.in_flight.is_empty()
    }

    fn open_again(&mut self, operation: &Operation) {
        let pause = u64::try_from(RETRY_PAUSE.as_nanos()).unwrap();
        self.open.push_back((now_ns() + pause, operation.clone()));
    }

    fn learn(&mut self, operation: &Operation, end: &End) {
        if let Some(count) = self.in_flight.get_mut(operation) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(operation);
            }
        }
        // Only a probe of a key that is used.
        if operation.amount > 1 {
            return;
        }
        match (end.kind, end.why) {
            ("ok", _) => {
                if self.seen.insert(operation.clone()) {
                    self.answered.push(operation.clone());
                }
            }
            ("info", "unknown") if end.status == Some(409) && operation.class == Class::Opaque => {
                self.unknown.insert(operation.clone());
            }
            _ => self.open_again(operation),
        }
    }
}

/// One client: a connection to each gateway, and one request at a time.
struct Client<'a> {
    clients: &'a Clients,
    process: String,
    connections: HashMap<SocketAddr, Connection>,
}

impl Client<'_> {
    /// Sends it, and notes what comes of it; why, if it was no answer.
    async fn send(&mut self, operation: &Operation) -> &'static str {
        let (via, address) = *fastrand::choice(&self.clients.gateways).unwrap();
        let line = self.invoke(operation, via);
        let end = match timeout(CLIENT_PATIENCE, self.post(address, operation)).await {
            Ok(answer) => End::of(answer, operation),
            Err(_) => End::of(Ok(None), operation),
        };
        // First the line, so that no other client asks in between without it.
        self.clients.history.note(end.line(line));
        self.clients.known().learn(operation, &end);
        end.why
    }

    /// Notes that it is sent, with the next number of its attempts.
    fn invoke(&self, operation: &Operation, via: &str) -> Value {
        let mut known = self.clients.known();
        *known.in_flight.entry(operation.clone()).or_default() += 1;
        let one = Operation { amount: 1, ..operation.clone() };
        let attempt = known.attempts.entry(one).or_default();
        *attempt += 1;
        let line = json!({
            "process": self.process, "kind": "invoke", "caller": operation.caller, "key": operation.key,
            "class": operation.class.name(), "attempt": *attempt, "fp": operation.fingerprint(), "via": via,
        });
        self.clients.history.note(line.clone());
        line
    }

    /// `None` if it was sent and no whole answer came; an error if it could not be sent.
    async fn post(
        &mut self,
        address: SocketAddr,
        operation: &Operation,
    ) -> Result<Option<Answer>, SendError> {
        let mut connection = match self.connections.remove(&address) {
            Some(connection) => connection,
            None => Connection::open(address).await?,
        };
        connection.set_caller(&operation.caller);
        let request =
            Request::post(operation.class.path()).header("idempotency-key", &operation.key);
        let answer = connection.send(request, &operation.body()).await;
        if answer.is_ok() {
            self.connections.insert(address, connection);
        }
        Ok(answer.ok())
    }
}

/// What came of a request.
struct End {
    kind: &'static str,
    why: &'static str,
    status: Option<u16>,
    replayed: bool,
    body: String,
    names: Value,
}

impl End {
    fn of(answer: Result<Option<Answer>, SendError>, operation: &Operation) -> Self {
        let none = |kind, why| {
            let (body, names) = (String::new(), Value::Null);
            Self { kind, why, status: None, replayed: false, body, names }
        };
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => return none("info", "lost"),
            Err(_) => return none("fail", "unavailable"),
        };
        let status = answer.status.as_u16();
        let (kind, why) = match (status, answer.problem().as_deref()) {
            (201, None) => ("ok", ""),
            (409 | 502, Some("idempotency_outcome_unknown")) => ("info", "unknown"),
            (502, Some("idempotency_response_not_sent")) => ("info", "lost"),
            (409, Some("idempotency_in_progress")) => ("fail", "in_progress"),
            (422, Some("idempotency_key_reused")) => ("fail", "mismatch"),
            (429, None) => ("fail", "not_executed"),
            (503, Some("idempotency_store_unavailable" | "overloaded")) => ("fail", "unavailable"),
            other => panic!("{operation:?}: {other:?}, {answer:?}"),
        };
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let names = json!([body["caller"], body["key"]]);
        let replayed = answer.is_replay();
        Self { kind, why, status: Some(status), replayed, body: digest(&answer.body), names }
    }

    fn line(&self, mut line: Value) -> Value {
        line["kind"] = self.kind.into();
        line["why"] = self.why.into();
        line["status"] = self.status.into();
        line["body"] = self.body.clone().into();
        line["replayed"] = self.replayed.into();
        line["names"] = self.names.clone();
        line
    }
}

/// How long a client waits before it hangs up and asks again.
const CLIENT_PATIENCE: Duration = Duration::from_secs(1);
/// The client's pause before it asks again, and not a wait for anything.
const RETRY_PAUSE: Duration = Duration::from_millis(40);
/// Of how many operations under way one is sent again.
const DUPLICATED_MAX: usize = 16;
/// How many clients bring everything to its end.
const DRAINERS: usize = 16;
const ROUNDS_MAX: usize = 200_000;
/// How many answers are read once more at the end, in the full tier.
const REREAD_MAX: usize = 5_000;
