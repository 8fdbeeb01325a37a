//! One gateway process, from its first line to its exit code.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::within;

/// A running gateway. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pid: u32,
    child: Child,
    errors: PathBuf,
}

impl Gateway {
    /// Starts it on the store in `folder`, and waits until it is ready.
    pub(crate) async fn start(folder: &Path, upstream: SocketAddr) -> Self {
        Self::with_policy(folder, upstream, "").await
    }

    /// The same, with these lines under `[policy]`.
    pub(crate) async fn with_policy(folder: &Path, upstream: SocketAddr, policy: &str) -> Self {
        let top = format!("store = \"sqlite:{}\"", store(folder).display());
        Self::with_top(folder, upstream, &top, policy).await
    }

    /// Starts it in `folder` with these lines at the top, where the store is named, and under `[policy]`.
    pub(crate) async fn with_top(
        folder: &Path,
        upstream: SocketAddr,
        top: &str,
        policy: &str,
    ) -> Self {
        let config = format!(
            "upstream = \"http://{upstream}\"\n{top}\n[admin]\nlisten = \"127.0.0.1:0\"\n[policy]\n{policy}\n",
        );
        fs::write(folder.join("onlyonce.toml"), config).unwrap();
        Self::listening(folder, "127.0.0.1:0").await
    }

    /// Starts it with the configuration in `folder`.
    pub(crate) async fn listening(folder: &Path, listen: &str) -> Self {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.args(["serve", "--config", "onlyonce.toml", "--listen", listen]);
        // What an emulator of DynamoDB believes; no other store asks for it.
        command.envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        Self::running(folder, command.current_dir(folder).stdin(Stdio::null())).await
    }

    /// Runs `command`, a gateway with an admin listener, and waits until it is ready.
    pub(crate) async fn running(folder: &Path, command: &mut std::process::Command) -> Self {
        let errors = folder.join("errors.log");
        let command = std::mem::replace(command, std::process::Command::new("true"));
        let mut child = Command::from(command)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&errors).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        let read = within("the gateway's first line", stdout.read_line(&mut line)).await;
        read.unwrap();
        let (address, admin) = match ["listening on", "admin"].map(|what| named(&line, what)) {
            [Some(address), Some(admin)] => (address, admin),
            // It was told to die at some request, and was so busy at once that it never said where it listens.
            _ if fs::read_to_string(&errors).is_ok_and(|told| told.contains("crash point ")) => {
                let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
                (nowhere, nowhere)
            }
            _ => panic!("not ready: {line:?}; {:?}", fs::read_to_string(&errors)),
        };
        Self { address, admin, pid: child.id().expect("it runs"), child, errors }
    }

    /// `kill -9`, and the end of it.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// As a terminal does that is closed, or an operator who wants the configuration to be read again.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Stops it where it is, as a paused virtual machine would.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid.cast_signed()).expect("a process has a number");
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        within("the gateway's end", self.child.wait()).await.unwrap()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What it wrote to stderr so far.
    pub(crate) fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    /// The most memory that it ever had, in KiB.
    pub(crate) fn memory_kib_max(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.expect("VmHWM").trim().parse().unwrap()
    }

    /// Whether the socket with this inode is one of its own.
    pub(crate) fn has_socket(&self, inode: &str) -> bool {
        let socket = format!("socket:[{inode}]");
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap();
        files
            .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
            .any(|link| link.as_os_str() == socket.as_str())
    }

    /// A number on the page of metrics, without what follows the point.
    pub(crate) async fn metric(&self, name: &str) -> usize {
        let page = self.admin("/metrics").await;
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
        let value = lines.next().unwrap_or_else(|| panic!("no {name}: {page}"));
        value.trim().parse::<f64>().unwrap() as usize
    }

    /// Where the admin listener is.
    pub(crate) fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// What the admin listener answers, from the status line on.
    pub(crate) async fn admin(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut page = String::new();
        within("an answer", stream.read_to_string(&mut page)).await.unwrap();
        page
    }
}

/// The store file of the gateways in `folder`.
pub(crate) fn store(folder: &Path) -> PathBuf {
    folder.join("onlyonce.db")
}

/// The first address after `what`.
fn named(line: &str, what: &str) -> Option<SocketAddr> {
    let (_, after) = line.split_once(&format!("{what} http"))?;
    let (_, after) = after.split_once("://")?;
    after.split([',', ' ', '/', '\n']).next()?.parse().ok()
}
