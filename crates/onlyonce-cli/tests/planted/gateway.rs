//! One gateway process, with or without a bug.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use onlyonce::planted::Planted;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::clock::ShiftedClock;

/// Lines of its configuration, beyond the defaults.
#[derive(Clone, Copy, Default)]
pub(crate) struct Settings {
    pub(crate) top: &'static str,
    pub(crate) policy: &'static str,
    pub(crate) route: &'static str,
    /// Whether the script sets its clock.
    pub(crate) has_own_clock: bool,
}

/// A running gateway. Killed when dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    child: Child,
}

impl Gateway {
    /// Starts it on the store in `folder`, and waits until it is ready.
    pub(crate) async fn start(
        bug: Option<Planted>,
        folder: &Path,
        upstream: SocketAddr,
        clock: Option<&ShiftedClock>,
        settings: Settings,
    ) -> Self {
        let Settings { top, policy, route, .. } = settings;
        let config = format!(
            "upstream = \"http://{upstream}\"\n{top}\n[admin]\nlisten = \"127.0.0.1:0\"\n[policy]\n{policy}\n{route}\n",
        );
        fs::write(folder.join("onlyonce.toml"), config).unwrap();
        let errors = folder.join("errors.log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.args(["serve", "--config", "onlyonce.toml", "--listen", "127.0.0.1:0"]);
        command.env("ONLYONCE_PLANTED", bug.map_or("", Planted::name));
        if let Some(clock) = clock {
            clock.preload(&mut command);
        }
        let mut child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&errors).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).await.unwrap();
        let [Some(address), Some(admin)] = ["listening on", "admin"].map(|what| named(&line, what))
        else {
            panic!("not ready: {line:?}; {:?}", fs::read_to_string(&errors));
        };
        Self { address, admin, child }
    }

    /// `kill -9`, and the end of it.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM, and the end of it.
    pub(crate) async fn stop(&mut self) {
        let pid = self.child.id().expect("it runs").cast_signed();
        kill_process(Pid::from_raw(pid).expect("a process has a number"), Signal::TERM).unwrap();
        self.child.wait().await.unwrap();
    }
}

/// The first address after `what`.
fn named(line: &str, what: &str) -> Option<SocketAddr> {
    let (_, after) = line.split_once(&format!("{what} http"))?;
    let (_, after) = after.split_once("://")?;
    after.split([',', ' ', '/', '\n']).next()?.parse().ok()
}
