//! A server's process: started unprivileged, ended with us, stopped by its id.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::START_WAIT_MAX;

/// The user that a server runs as where we are root: nobody.
pub(crate) const UNPRIVILEGED: u32 = 65534;

/// Whether we may do anything, and servers therefore refuse to be us.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `program` as an unprivileged user, that ends when this process does.
pub(crate) fn unprivileged(program: impl AsRef<Path>) -> Command {
    unprivileged_told("QUIT", program)
}

/// The same, with the signal that it gets when this process ends.
pub(crate) fn unprivileged_told(signal: &str, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        command.arg(format!("--reuid={UNPRIVILEGED}"));
        command.arg(format!("--regid={UNPRIVILEGED}")).arg("--clear-groups");
    }
    command.arg(format!("--pdeathsig={signal}")).arg("--").arg(program.as_ref());
    // A folder that the user may enter: ours may be root's own.
    command.current_dir("/");
    command
}

/// `program` as the user that we are, that ends when this process does. For servers in a folder that may be ours alone.
pub(crate) fn alongside(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL").arg("--").arg(program.as_ref());
    command
}

/// Runs a tool to its end, unprivileged; panics with what it said.
pub(crate) fn run(program: impl AsRef<Path>, args: &[&str]) -> String {
    let program = program.as_ref();
    let output = unprivileged(program).args(args).output();
    let output =
        output.unwrap_or_else(|error| panic!("{} does not run: {error}", program.display()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {args:?} failed: {said}", program.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// What ends it at once, and its children with it.
    last: Signal,
}

impl Process {
    /// Starts `command`, its output appended to `log`, and waits until `is_ready`.
    pub(crate) fn start(mut command: Command, log: &Path, is_ready: impl Fn() -> bool) -> Self {
        let out = File::options().create(true).append(true).open(log).expect("a log can be opened");
        let err = out.try_clone().expect("a log can be opened twice");
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = spawn(command)
            .unwrap_or_else(|error| panic!("no server: {error}; scripts/test installs them"));
        let mut process = Self { child, log: log.to_owned(), last: Signal::KILL };
        wait_until("a server to be ready", || process.demand_alive() && is_ready());
        process
    }

    /// The same process, ended by `signal` when it is dropped.
    pub(crate) fn ended_by(self, last: Signal) -> Self {
        let mut process = self;
        process.last = last;
        process
    }

    fn demand_alive(&mut self) -> bool {
        let ended = self.child.try_wait().expect("a child can be asked");
        if let Some(status) = ended {
            panic!("the server ended with {status}:\n{}", self.log_text());
        }
        true
    }

    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends `signal` to it.
    pub(crate) fn signal(&self, signal: Signal) {
        signal_to(self.child.id(), signal);
    }

    /// Sends `signal` to it and waits for its end.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        wait_until("a server to end", || matches!(self.child.try_wait(), Ok(Some(_))));
    }

    /// Kills it and all of its children as a power cut would: none gets to write another byte.
    pub(crate) fn kill_tree(&mut self) {
        kill_tree(self.child.id());
        self.end(Signal::KILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::CONT);
            self.end(self.last);
        }
    }
}

/// Starts a child on a thread that never ends: the child is told when the *thread* that started it dies.
fn spawn(command: Command) -> io::Result<Child> {
    type Request = (Command, mpsc::Sender<io::Result<Child>>);
    static STARTER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (send, requests) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in requests {
                // The one who asked is waiting.
                let _ = answer.send(command.spawn());
            }
        });
        send
    });
    let (answer, child) = mpsc::channel();
    starter.send((command, answer)).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

fn signal_to(id: u32, signal: Signal) {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    // One that has ended meanwhile needs no signal.
    let _ = kill_process(id.expect("a process id is positive"), signal);
}

/// Kills the process with this id, and its children.
pub(crate) fn kill_tree(id: u32) {
    let tree = stop_tree(id);
    tree.iter().for_each(|id| signal_to(*id, Signal::KILL));
    wait_until("a process and its children to end", || !tree.iter().any(|id| is_alive(*id)));
}

/// Stops it before its children are counted, so that it has no more of them.
fn stop_tree(id: u32) -> Vec<u32> {
    signal_to(id, Signal::STOP);
    let children = children_of(id).into_iter().flat_map(stop_tree);
    children.chain([id]).collect()
}

/// Those of all of its threads.
fn children_of(parent: u32) -> Vec<u32> {
    let threads = PathBuf::from(format!("/proc/{parent}/task"));
    let children = |thread: u32| fs::read_to_string(threads.join(format!("{thread}/children")));
    let children: Vec<_> = numbers_in(&threads).filter_map(|id| children(id).ok()).collect();
    children
        .iter()
        .flat_map(|ids| ids.split_whitespace())
        .filter_map(|id| id.parse().ok())
        .collect()
}

fn numbers_in(folder: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether the process runs; one that is dead and not yet reaped does not.
fn is_alive(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[expect(clippy::disallowed_methods, reason = "a test waits by the real clock")]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < START_WAIT_MAX, "waited {START_WAIT_MAX:?} for {what}");
        thread::sleep(LOOK_EVERY);
    }
}

/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);
