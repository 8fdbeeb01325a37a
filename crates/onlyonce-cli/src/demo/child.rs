//! A gateway in a process of its own, to be killed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use onlyonce::store::BoxError;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// The process. Killed when dropped.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
}

impl Child {
    /// Starts `onlyonce serve` in front of the bank, on a store of its own.
    pub(super) async fn start(bank: SocketAddr, folder: &Path) -> Result<Self, BoxError> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(["--upstream", &format!("http://{bank}")])
            .args(["--store", &format!("sqlite:{}", folder.join("child.db").display())])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or("its output is read here")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(READY_WAIT, lines.next_line()).await??.unwrap_or_default();
        let address =
            line.split_once("http://").map(|(_, rest)| rest.split(',').next().unwrap_or(rest));
        let address = address.ok_or("the gateway did not start")?.parse()?;
        Ok(Self { process, address })
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self) -> Result<(), BoxError> {
        Ok(self.process.kill().await?)
    }
}

const READY_WAIT: Duration = Duration::from_secs(10);
