//! What a `kill -9` leaves: a child writes and reports, its parent kills it and checks.
//!
//! 1. In the child, [`write_until_killed`] writes to the store on many lanes at once and reports each
//!    write after the store has answered it.
//! 2. In the parent, [`kill_after`] lets it report a number of writes, then kills it.
//! 3. The parent opens the store again, and [`check`] finds every write that was reported. Of each
//!    operation, the one write that may have been under way may be there or not; nothing else may.
//!
//! Both are one test binary: [`child`] starts it again with an ignored test as its entry. A record that
//! was running may be unknown when the store is opened again, and that is no loss. Only the process
//! dies here: what a loss of power leaves is another matter.
//!
//! ```no_run
//! use onlyonce::store::conformance::durability::{check, child, kill_after, write_until_killed};
//! # use onlyonce::store::memory::MemoryStore as MyStore;
//! # fn open() -> MyStore { MyStore::new() }
//!
//! #[tokio::test]
//! #[ignore = "the child of the test below"]
//! async fn the_child() {
//!     write_until_killed(open(), std::io::stdout()).await.unwrap();
//! }
//!
//! #[tokio::test]
//! async fn what_was_answered_survives_a_kill() {
//!     let acked = kill_after(child("the_child").unwrap(), 500).unwrap();
//!     check(&open(), &acked).await.unwrap();
//! }
//! ```

mod life;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use self::life::Operation;
use crate::store::{BoxError, Store};

/// The child's part. It ends only if the store gives a wrong answer or none, or nobody reads `acks`.
///
/// # Errors
/// Why it ended.
pub async fn write_until_killed<S: Store>(
    store: S,
    mut acks: impl Write + Send + 'static,
) -> Result<Infallible, BoxError> {
    // A test harness may have left a line open.
    writeln!(acks)?;
    let (store, acks) = (Arc::new(store), Arc::new(Mutex::new(acks)));
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        lanes.spawn(write_lane(store.clone(), acks.clone(), lane));
    }
    match lanes.join_next().await {
        Some(ended) => ended?,
        None => Err("there are no lanes".into()),
    }
}

async fn write_lane<S: Store>(
    store: Arc<S>,
    acks: Arc<Mutex<impl Write + Send>>,
    lane: u32,
) -> Result<Infallible, BoxError> {
    let mut number = lane;
    loop {
        let operation = Operation(number);
        for step in 1..=operation.steps() {
            operation.write(&*store, step).await?;
            report(&acks, number, step)?;
        }
        number += LANES;
    }
}

fn report(acks: &Mutex<impl Write>, number: u32, step: usize) -> io::Result<()> {
    let mut acks = acks.lock().unwrap_or_else(PoisonError::into_inner);
    acks.write_all(format!("{ACK} {number} {step}\n").as_bytes())?;
    acks.flush()
}

/// This very test binary again, with the ignored test of that name as its entry.
///
/// Give it the place of the store in its environment.
///
/// # Errors
/// If this binary cannot be found.
pub fn child(test: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    Ok(command)
}

/// The writes that a child reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    steps: BTreeMap<u32, usize>,
}

impl Acked {
    /// How many.
    pub fn count(&self) -> usize {
        self.steps.values().sum()
    }

    /// A line that is not a report is someone else's.
    fn add(&mut self, line: &str) {
        let mut words = line.split(' ');
        let is_ack = words.next() == Some(ACK);
        let number = words.next().and_then(|word| word.parse().ok());
        let step = words.next().and_then(|word| word.parse().ok());
        if let (true, Some(number), Some(step)) = (is_ack, number, step) {
            self.steps.insert(number, step);
        }
    }

    /// Every operation that was begun, and those that may have been.
    fn operations(&self) -> impl Iterator<Item = (Operation, usize)> {
        let last = self.steps.keys().next_back().map_or(0, |last| *last);
        let steps = |number| self.steps.get(&number).copied().unwrap_or(0);
        (0..=last + LANES).map(move |number| (Operation(number), steps(number)))
    }
}

/// The parent's part: starts the child, waits for so many reports, and kills it without warning.
///
/// # Errors
/// If it cannot be started, ends by itself, or falls silent for [`ACK_WAIT_MAX`].
pub fn kill_after(mut child: Command, acks: usize) -> io::Result<Acked> {
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let lines = lines(&mut child);
    let mut acked = Acked::default();
    let reported = read_until(&lines, &mut acked, acks);
    child.kill()?;
    child.wait()?;
    reported?;
    while let Ok(line) = lines.recv_timeout(ACK_WAIT_MAX) {
        acked.add(&line);
    }
    Ok(acked)
}

fn read_until(lines: &Receiver<String>, acked: &mut Acked, acks: usize) -> io::Result<()> {
    while acked.count() < acks {
        match lines.recv_timeout(ACK_WAIT_MAX) {
            Ok(line) => acked.add(&line),
            Err(_) => {
                let count = acked.count();
                return Err(io::Error::other(format!(
                    "the child ended or fell silent after {count} writes"
                )));
            }
        }
    }
    Ok(())
}

/// The whole lines that the child writes; one that was cut off is no report.
fn lines(child: &mut Child) -> Receiver<String> {
    let stdout = child.stdout.take().expect("its output was piped above");
    let mut stdout = BufReader::new(stdout);
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while stdout.read_line(&mut line).is_ok() && line.ends_with('\n') {
            if send.send(line.trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

/// Every write that was reported is there, and nothing that was never sent.
///
/// # Errors
/// What is missing, or is there and should not be; or the store's own fault.
pub async fn check<S: Store>(store: &S, acked: &Acked) -> Result<(), BoxError> {
    for (operation, steps) in acked.operations() {
        let record = store.load(operation.id()).await?.record;
        let allowed = [steps, (steps + 1).min(operation.steps())];
        let is_allowed = |steps: &usize| operation.is_after(*steps, record.as_ref());
        if !allowed.iter().any(is_allowed) {
            let number = operation.0;
            return Err(format!(
                "operation {number}: {steps} writes were answered, and it is {record:?}"
            )
            .into());
        }
    }
    Ok(())
}

/// Operations that the child works on at once.
const LANES: u32 = 8;
/// How long a child may report nothing.
pub const ACK_WAIT_MAX: Duration = Duration::from_secs(30);
const ACK: &str = "ack";
