//! One gateway process: started with a file of configuration, killed by its id.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::profile::{self, Profile};
use crate::webhooks::sender;
use crate::within;

#[derive(Debug)]
pub(super) struct Process {
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    /// What it said when it was ready.
    pub(super) line: String,
    folder: PathBuf,
    child: Child,
}

impl Process {
    pub(super) async fn start(folder: &Path, upstream: &str, profile: Profile<'_>) -> Self {
        configure(folder, upstream, profile);
        let (child, line, [address, admin]) = spawn(folder).await;
        Self { address, admin, line, folder: folder.to_owned(), child }
    }

    /// Writes another file of configuration, for the next start.
    pub(super) fn configure(&self, upstream: &str, profile: Profile<'_>) {
        configure(&self.folder, upstream, profile);
    }

    /// SIGKILL, and waits for the end.
    pub(super) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(pid.expect("it runs"), signal).unwrap();
    }

    pub(super) async fn restart(&mut self) {
        (self.child, self.line, [self.address, self.admin]) = spawn(&self.folder).await;
    }
}

fn configure(folder: &Path, upstream: &str, profile: Profile<'_>) {
    let (process, policy) = profile::toml(profile);
    // Without another word, the store is a file in the folder.
    let config = format!(
        "listen = \"127.0.0.1:0\"\nupstream = {upstream:?}\n{process}\n[admin]\nlisten = \"127.0.0.1:0\"\n[policy]\n{policy}",
    );
    std::fs::write(folder.join(CONFIG), config).unwrap();
}

async fn spawn(folder: &Path) -> (Child, String, [SocketAddr; 2]) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["serve", "--config", CONFIG])
        .current_dir(folder)
        .env("ONLYONCE_SECRET", super::SECRET)
        .env("HOOK", sender::SECRET)
        .env("HOOK_OLD", sender::OLD_SECRET)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log(folder))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    within("the gateway's first line", stdout.read_line(&mut line)).await.unwrap();
    let addresses = ["listening on", "admin"].map(|what| named(&line, what));
    let [Some(address), Some(admin)] = addresses else {
        panic!("the gateway is not ready: {line:?}; {}", logs(folder));
    };
    tokio::spawn(keep(stdout, log(folder)));
    (child, line, [address, admin])
}

/// The first address after `what`.
fn named(line: &str, what: &str) -> Option<SocketAddr> {
    let (_, after) = line.split_once(&format!("{what} http://"))?;
    after.split([',', ' ', '/', '\n']).next()?.parse().ok()
}

/// What else it says.
async fn keep(mut stdout: BufReader<ChildStdout>, log: File) {
    let mut log = tokio::fs::File::from_std(log);
    // The log is looked at for what must not be in it; an unreadable rest has nothing.
    let _ = tokio::io::copy(&mut stdout, &mut log).await;
}

fn log(folder: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(folder.join(LOG)).unwrap()
}

pub(super) fn logs(folder: &Path) -> String {
    std::fs::read_to_string(folder.join(LOG)).unwrap()
}

const CONFIG: &str = "onlyonce.toml";
const LOG: &str = "output.log";
