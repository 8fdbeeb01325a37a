//! A disk that fails or loses its power under load: nothing is served that a restart does not also show.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proof::client::{self, Answer, Connection};
use proof::disk::{Disk, Shim, Survival};
use proof::ledger::Ledger;
use proof::oracle::Oracle;
use proof::tier::tiered;
use rusqlite::{Connection as Reader, OpenFlags};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const CLIENTS: usize = 6;
/// At which of the first so many writes, or syncs, of a run the fault strikes.
const PLACES: usize = 40;
/// Of a log that is written back.
const CHECKPOINT_PLACES: usize = 5;
/// Within which a service must be up again after one fault, or after the last of many.
const RECOVERY: Duration = Duration::from_secs(10);

// threats E1, E3, C14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_full_at_any_write_loses_nothing_that_was_served() {
    torment(&["full", "torn"]).await;
}

// threat E4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_loses_nothing_that_was_served() {
    torment(&["eio"]).await;
}

// threat E4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_fails_loses_nothing_that_was_served() {
    torment(&["sync-drop", "sync-lie"]).await;
}

// threats A14, E1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_at_any_write_or_sync_loses_nothing_that_was_served() {
    torment(&["cut", "cut-sync"]).await;
}

// threat E3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_while_the_log_is_written_back_lose_nothing_that_was_served() {
    let mut lab = Lab::new();
    for kind in ["full", "torn", "eio", "sync-drop", "sync-lie", "cut"] {
        for n in (1..=CHECKPOINT_PLACES).step_by(step(CHECKPOINT_PLACES)) {
            // A checkpoint writes many pages, and syncs them once at most.
            let place = if kind.starts_with("sync") { 1 } else { n };
            lab.run(When::Serving, &format!("{kind} {place} onlyonce.db")).await;
        }
    }
    lab.end().await;
}

// threat E4: a checkpoint that an outside reader holds up is not synced, yet counts as written back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_written_back_without_a_sync_are_written_again_after_one_that_failed() {
    for (kind, reader_stays) in [("sync-drop", true), ("sync-lie", false)] {
        let mut lab = Lab::new();
        let words = format!("{kind} 1 onlyonce.db");
        lab.fail_after_part(&words, reader_stays).await;
        lab.end().await;
    }
}

// The engine does not say that the folder, with the name of a new log in it, could not be synced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_whose_sync_fails_while_serving_loses_nothing_that_was_served() {
    let mut lab = Lab::new();
    let folder = lab.folder.path().file_name().unwrap().to_owned();
    let words = format!("sync-drop 1 {}", folder.to_str().unwrap());
    lab.run(When::Serving, &words).await;
    lab.end().await;
}

// threats E3, C14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_stays_full_executes_nothing_and_recovers_with_room() {
    let mut lab = Lab::new();
    for n in (1..=PLACES).step_by(step(PLACES)) {
        lab.stay_full(&format!("full-on {n} *")).await;
    }
    lab.end().await;
}

// The harness itself: were the store to answer before its data is safe, this is how it would look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_lost_with_a_disk_that_never_syncs_are_noticed() {
    let lab = Lab::new();
    let mut ledger = lab.start().unwrap();
    let load = Load::start(ledger.address, &lab.history);
    lab.disk.arm("deaf 1 *").unwrap();
    wait_until(|| lab.history.lock().unwrap().acknowledged.len() > 50).await;
    load.kill(&mut ledger).await;
    lab.disk.cut_power(Survival::Nothing).unwrap();
    let ledger = Ledger::start(PROGRAM, lab.folder.path()).unwrap();
    let lost = lab.lost(ledger.address).await;
    assert!(!lost.is_empty(), "no answer was lost");
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_ledger");

/// Every kind of fault, at each of the first places of a run: of one that makes the store, of one
/// that opens what a power cut left, and of one that is under way.
async fn torment(kinds: &[&str]) {
    for kind in kinds {
        let mut lab = Lab::new();
        for n in (1..=PLACES).step_by(step(PLACES)) {
            let words = format!("{kind} {n} *");
            let mut fresh = Lab::new();
            fresh.run(When::Opening, &words).await;
            lab.tally.add(fresh.end().await);
            lab.run(When::Opening, &words).await;
            lab.run(When::Serving, &words).await;
        }
        lab.end().await;
    }
}

/// So that the fast tier strikes at a tenth of the places, the first among them.
fn step(places: usize) -> usize {
    places / tiered(places)
}

/// When a fault begins to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Opening,
    Serving,
}

/// One store through many faults, and everything that its clients know.
struct Lab {
    folder: TempDir,
    shim: Shim,
    disk: Disk,
    history: Shared,
    tally: Tally,
}

/// What was tried, so that a run in which nothing happened is noticed.
#[derive(Default)]
struct Tally {
    runs: usize,
    faults: BTreeMap<String, usize>,
    refused: usize,
    undone: usize,
    reread: usize,
    unknown: usize,
    unavailable: usize,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            shim: Shim::build(folder.path()).unwrap(),
            disk: Disk::new(folder.path(), "onlyonce.db").unwrap(),
            folder,
            history: Shared::default(),
            tally: Tally::default(),
        }
    }

    /// One life under one fault, a power cut, and a life on a good disk that must show everything.
    async fn run(&mut self, when: When, words: &str) {
        println!("{when:?}: {words}");
        if when == When::Opening {
            self.disk.arm(words).unwrap();
        }
        match self.start() {
            Ok(ledger) => self.strike(ledger, when, words).await,
            Err(sentence) => self.check_refusal(&sentence, words),
        }
        self.survive().await;
    }

    /// Load until the fault has struck and, unless it killed, the service has recovered by itself.
    async fn strike(&self, mut ledger: Ledger, when: When, words: &str) {
        if when == When::Serving {
            self.disk.arm(words).unwrap();
        }
        let load = Load::start(ledger.address, &self.history);
        wait_until(|| !self.disk.faults().is_empty()).await;
        if !words.starts_with("cut") {
            self.demand_service(ledger.address).await;
            sleep(Duration::from_millis(fastrand::u64(10..80))).await;
        }
        load.kill(&mut ledger).await;
    }

    /// The log is written back in part, then whole, and then the sync fails.
    async fn fail_after_part(&mut self, words: &str, reader_stays: bool) {
        println!("{words}, reader stays: {reader_stays}");
        let mut ledger = self.start().unwrap();
        let load = Load::start(ledger.address, &self.history);
        let file = self.folder.path().join("onlyonce.db");
        wait_until(|| self.history.lock().unwrap().acknowledged.len() > 300).await;
        let reader = Reader::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM meta").unwrap();
        let before = fs::metadata(&file).unwrap().len();
        wait_until(|| fs::metadata(&file).unwrap().len() > before).await;
        self.disk.arm(words).unwrap();
        reader.execute_batch("COMMIT").unwrap();
        let reader = Some(reader).filter(|_| reader_stays);
        wait_until(|| !self.disk.faults().is_empty()).await;
        if reader.is_some() {
            wait_until(|| self.history.lock().unwrap().unavailable > 0).await;
            self.demand_refusals(ledger.address).await;
        }
        drop(reader);
        self.demand_service(ledger.address).await;
        load.kill(&mut ledger).await;
        self.survive().await;
    }

    /// All room is gone while requests are under way, and comes back later.
    async fn stay_full(&mut self, words: &str) {
        println!("{words}");
        let mut ledger = self.start().unwrap();
        let load = Load::start(ledger.address, &self.history);
        self.disk.arm(words).unwrap();
        wait_until(|| !self.disk.faults().is_empty()).await;
        self.demand_refusals(ledger.address).await;
        self.disk.arm("none 0 *").unwrap();
        self.demand_service(ledger.address).await;
        load.kill(&mut ledger).await;
        self.survive().await;
    }

    /// The service under the shim, or why it refused to start.
    fn start(&self) -> Result<Ledger, String> {
        let said = self.folder.path().join("stderr");
        let mut command = Command::new(PROGRAM);
        command.arg(self.folder.path()).stdout(Stdio::piped());
        command.stderr(File::create(&said).unwrap());
        self.disk.under(&self.shim, &mut command);
        Ledger::spawn(command).map_err(|_| fs::read_to_string(&said).unwrap())
    }

    /// A refusal names the disk, and asks nobody to restore anything: nothing is damaged.
    fn check_refusal(&mut self, sentence: &str, words: &str) {
        self.tally.refused += 1;
        // The engine below does not tell why it could not make a file.
        let creates = self.disk.faults()[0].contains("creation");
        let expected: &[&str] = match words.split(' ').next().unwrap() {
            "full" | "torn" if !creates => &["is full: make room"],
            "cut" | "cut-sync" => &[""],
            _ => &["is full: make room", "cannot be used", "cannot be opened"],
        };
        assert!(expected.iter().any(|text| sentence.contains(text)), "{words}: {sentence:?}");
    }

    /// A fresh key completes soon.
    async fn demand_service(&self, address: SocketAddr) {
        let key = new_key(&self.history);
        let served = timeout(RECOVERY, async {
            while send_once(address, &self.history, &key).await {
                sleep(Duration::from_millis(5)).await;
            }
        });
        served.await.expect("the service did not recover");
    }

    /// Fresh keys are refused as the design says, and not executed.
    async fn demand_refusals(&self, address: SocketAddr) {
        let keys: Vec<_> = (0..5).map(|_| new_key(&self.history)).collect();
        let mut answers = JoinSet::new();
        for key in keys.clone() {
            answers.spawn(async move { client::post(address, "/charges", &key, BODY).await });
        }
        while let Some(answer) = answers.join_next().await {
            let answer = answer.unwrap().unwrap();
            assert_eq!(answer.status, 503, "{answer:?}");
            assert_eq!(answer.problem().as_deref(), Some(UNAVAILABLE));
            assert!(answer.headers.contains_key("retry-after"));
        }
        let executions = self.executions();
        assert!(keys.iter().all(|key| !executions.contains_key(key)));
        let mut history = self.history.lock().unwrap();
        history.struck.extend(keys.iter().cloned());
        history.open.extend(keys);
    }

    /// The power is cut; then a good disk shows everything that was served.
    async fn survive(&mut self) {
        let faults = self.disk.faults();
        assert!(!faults.is_empty(), "no fault struck");
        let survival = match fastrand::bool() {
            true => Survival::Nothing,
            false => Survival::Some(fastrand::u64(..)),
        };
        println!("    {survival:?}: {faults:?}");
        self.tally.runs += 1;
        for fault in faults {
            let kind = fault.split(' ').next().unwrap_or_default();
            *self.tally.faults.entry(kind.to_owned()).or_default() += 1;
        }
        self.tally.undone += self.disk.cut_power(survival).unwrap();
        let ledger = Ledger::start(PROGRAM, self.folder.path()).unwrap();
        finish(ledger.address, &self.history).await;
        let lost = self.lost(ledger.address).await;
        assert!(lost.is_empty(), "served, and lost: {} as {:?}", lost.len(), lost[0]);
        self.tally.reread += std::mem::take(&mut self.history.lock().unwrap().unread).len();
        self.judge();
    }

    /// What was served since the last restart and is not what a retry gets now.
    async fn lost(&self, address: SocketAddr) -> Vec<String> {
        let mut connection = Connection::open(address).await.unwrap();
        let (unread, served) = {
            let history = self.history.lock().unwrap();
            (history.unread.clone(), history.acknowledged.clone())
        };
        let mut lost = Vec::new();
        for key in unread {
            let again = connection.post("/charges", &key, BODY).await.unwrap();
            let first = &served[&key];
            let same = (again.status, &again.body) == (first.status, &first.body);
            if !same || !again.is_replay() {
                lost.push(format!("{key}: {:?}, then {:?}", first.body, again.body));
            }
        }
        lost
    }

    fn judge(&self) {
        let (history, executions) = (self.history.lock().unwrap(), self.executions());
        let twice: Vec<_> = executions.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "executed twice: {twice:?}");
        for key in history.acknowledged.keys() {
            assert_eq!(executions.get(key), Some(&1), "{key} was answered");
        }
        let stray: Vec<_> = history.unknown.difference(&history.struck).collect();
        assert!(stray.is_empty(), "unknown without a fault: {stray:?}");
        let ended = history.acknowledged.len() + history.unknown.len();
        assert_eq!(ended, history.issued, "some keys never ended");
    }

    fn executions(&self) -> HashMap<String, usize> {
        Oracle::executions(&self.folder.path().join("oracle")).unwrap_or_default()
    }

    /// Everything that was ever served from this store, once more.
    async fn end(mut self) -> Tally {
        let ledger = Ledger::start(PROGRAM, self.folder.path()).unwrap();
        {
            let mut history = self.history.lock().unwrap();
            history.unread = history.acknowledged.keys().cloned().collect();
        }
        let lost = self.lost(ledger.address).await;
        assert!(lost.is_empty(), "lost later: {} as {:?}", lost.len(), lost[0]);
        let history = self.history.lock().unwrap();
        self.tally.unknown += history.unknown.len();
        self.tally.unavailable += history.unavailable;
        println!("{}", self.tally);
        drop(history);
        self.tally
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.refused += other.refused;
        self.undone += other.undone;
        self.reread += other.reread;
        self.unknown += other.unknown;
        self.unavailable += other.unavailable;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { runs, faults, refused, undone, reread, unknown, unavailable } = self;
        write!(
            f,
            "{runs} runs, faults {faults:?}, {refused} opens refused, {undone} changes undone, \
             {unavailable} answers of 503, {unknown} unknown, {reread} answers re-read, 0 lost, 0 twice"
        )
    }
}

/// Clients that send until the service is killed among them.
struct Load {
    history: Shared,
    stop: watch::Sender<bool>,
    clients: JoinSet<()>,
}

impl Load {
    fn start(address: SocketAddr, history: &Shared) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(send_until(address, history.clone(), stopped.clone()));
        }
        let history = history.clone();
        Self { history, stop, clients }
    }

    async fn kill(mut self, ledger: &mut Ledger) {
        ledger.kill().unwrap();
        self.stop.send_replace(true);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        assert!(self.history.lock().unwrap().in_flight.is_empty());
    }
}

/// Everything that the clients know.
#[derive(Default)]
struct History {
    /// Sent, and no answer yet.
    in_flight: HashSet<String>,
    /// Answered with an error of the store, or with none because of a kill: these may be unknown.
    struck: HashSet<String>,
    /// The first whole answer of each key.
    acknowledged: HashMap<String, Answer>,
    /// Of those, the ones that no restart has confirmed.
    unread: HashSet<String>,
    unknown: HashSet<String>,
    unavailable: usize,
    issued: usize,
    open: Vec<String>,
}

type Shared = Arc<Mutex<History>>;

/// One client: retries what is open, else begins anew; until told to stop.
async fn send_until(address: SocketAddr, history: Shared, stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        let key = next_key(&history);
        if send_once(address, &history, &key).await {
            history.lock().unwrap().open.push(key);
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A key that is open; or an old one, to see its replay; or a new one.
fn next_key(history: &Shared) -> String {
    {
        let mut history = history.lock().unwrap();
        if let Some(key) = history.open.pop() {
            return key;
        }
        if fastrand::u8(..) < 50
            && let Some(key) = fastrand::choice(&history.unread)
        {
            return key.clone();
        }
    }
    new_key(history)
}

fn new_key(history: &Shared) -> String {
    let mut history = history.lock().unwrap();
    history.issued += 1;
    format!("operation-{:08}-{:016x}", history.issued, fastrand::u64(..))
}

/// Whether the key must be sent again.
async fn send_once(address: SocketAddr, history: &Shared, key: &str) -> bool {
    history.lock().unwrap().in_flight.insert(key.to_owned());
    let answer = client::post(address, "/charges", key, BODY).await;
    let mut history = history.lock().unwrap();
    history.in_flight.remove(key);
    match answer {
        Err(_) => {
            history.struck.insert(key.to_owned());
            true
        }
        Ok(answer) => history.learn(key, answer),
    }
}

impl History {
    fn learn(&mut self, key: &str, answer: Answer) -> bool {
        match (answer.status.as_u16(), answer.problem().as_deref()) {
            (201, None) => self.acknowledge(key, answer),
            (409, Some("idempotency_outcome_unknown")) => {
                let served = self.acknowledged.contains_key(key);
                assert!(!served, "{key} was answered, and is unknown now");
                self.unknown.insert(key.to_owned());
                false
            }
            (409, Some("idempotency_in_progress")) => true,
            // The store took the answer too late: the key is asked about again.
            (502, Some("idempotency_outcome_unknown")) => {
                self.struck.insert(key.to_owned());
                true
            }
            (503, Some(UNAVAILABLE)) => {
                self.unavailable += 1;
                self.struck.insert(key.to_owned());
                true
            }
            other => panic!("{key}: {other:?}"),
        }
    }

    fn acknowledge(&mut self, key: &str, answer: Answer) -> bool {
        let unknown = self.unknown.contains(key);
        assert!(!unknown, "{key} was unknown, and nobody settled it");
        let is_first = !self.acknowledged.contains_key(key);
        let first = self.acknowledged.entry(key.to_owned()).or_insert_with(|| answer.clone());
        assert_eq!(first.body, answer.body, "two answers for {key}");
        if is_first {
            self.unread.insert(key.to_owned());
        }
        false
    }
}

/// Brings what is still open to an end.
async fn finish(address: SocketAddr, history: &Shared) {
    let ended = timeout(RECOVERY, async {
        while let Some(key) = { history.lock().unwrap().open.pop() } {
            while send_once(address, history, &key).await {
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
    ended.await.expect("some keys never ended");
}

async fn wait_until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = timeout(CONDITION_WAIT, waiting).await;
    waited.expect("it never came to that");
}

const CONDITION_WAIT: Duration = Duration::from_secs(120);
const BODY: &str = "{\"amount\":1}";
const UNAVAILABLE: &str = "idempotency_store_unavailable";
