//! The gateway of the demo: a process of its own, which can be killed and started again where it was.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use onlyonce::store::BoxError;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::commands::exit;
use crate::config::{Config, Flags};
use crate::gateway::{DRAIN, Gateway};

/// The process. Killed when dropped; it also ends by itself when this process is gone, however that ended.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// Where its operator's page is.
    pub(super) admin: SocketAddr,
    bank: SocketAddr,
    folder: PathBuf,
    /// What it logs.
    log: String,
}

impl Child {
    /// Starts a gateway in front of the bank, on the usual ports if they are free, for the lines to try by hand.
    pub(super) async fn start(
        bank: SocketAddr,
        folder: &Path,
        log: &str,
    ) -> Result<Self, BoxError> {
        let (address, admin) = (free_or_any(USUAL), free_or_any(USUAL_ADMIN));
        let (process, address, admin) = spawn(bank, folder, log, address, admin).await?;
        let (folder, log) = (folder.to_owned(), log.to_owned());
        Ok(Self { process, address, admin, bank, folder, log })
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self) -> Result<(), BoxError> {
        Ok(self.process.kill().await?)
    }

    /// Starts it again, on the same store and the same addresses.
    pub(super) async fn restart(&mut self) -> Result<(), BoxError> {
        let (folder, log) = (&self.folder, &self.log);
        let (process, ..) = spawn(self.bank, folder, log, self.address, self.admin).await?;
        self.process = process;
        Ok(())
    }

    /// Lets what is under way end.
    pub(super) async fn stop(mut self) {
        drop(self.process.stdin.take());
        let _ = timeout(DRAIN + READY_WAIT, self.process.wait()).await;
    }
}

/// What the process does: it serves until its standard input ends, which is when the demo has ended.
pub(super) fn run(file: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.map_err(BoxError::from).and_then(|runtime| runtime.block_on(serve(file)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::trouble(&format!("the gateway of the demo cannot start: {error}")),
    }
}

async fn serve(file: &Path) -> Result<(), BoxError> {
    let config = Config::load(file)?.with_flags(Flags::default())?;
    let gateway = Gateway::start(&config).await?;
    let admin = gateway.admin.ok_or("its configuration has an admin listener")?;
    println!("{} {admin}", gateway.address);
    // Ctrl-C reaches every process of the terminal; this one goes by its standard input.
    tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
    let _ = tokio::io::stdin().read(&mut [0]).await;
    gateway.stop().await;
    Ok(())
}

async fn spawn(
    bank: SocketAddr,
    folder: &Path,
    log: &str,
    listen: SocketAddr,
    admin: SocketAddr,
) -> Result<(tokio::process::Child, SocketAddr, SocketAddr), BoxError> {
    let file = folder.join("onlyonce.toml");
    tokio::fs::write(&file, configuration(bank, folder, listen, admin)).await?;
    let mut process = Command::new(std::env::current_exe()?)
        .args(["demo", "--log", log, "--gateway"])
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = process.stdout.take().ok_or("its output is read here")?;
    let mut lines = BufReader::new(stdout).lines();
    let line = timeout(READY_WAIT, lines.next_line()).await??.unwrap_or_default();
    let (address, admin) = line.split_once(' ').ok_or("the gateway did not start")?;
    Ok((process, address.parse()?, admin.parse()?))
}

fn configuration(bank: SocketAddr, folder: &Path, listen: SocketAddr, admin: SocketAddr) -> String {
    let store = folder.join("onlyonce.db");
    // A browser sends the cookies of everything that ever ran on this machine, whatever its port: none of them is a caller.
    format!(
        "listen = \"{listen}\"\nupstream = \"http://{bank}\"\nstore = 'sqlite:{}'\n\n\
         [admin]\nlisten = \"{admin}\"\n\n[audit]\n\n[[route]]\nmatch = \"POST /charges\"\nprincipal = \"none\"\naudit_ids = [\"/id\"]\n",
        store.display()
    )
}

fn free_or_any(usual: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::new(usual.ip(), 0),
    }
}

const LOOPBACK: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const USUAL: SocketAddr = SocketAddr::new(LOOPBACK, 8080);
const USUAL_ADMIN: SocketAddr = SocketAddr::new(LOOPBACK, 8081);
const READY_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::config::PrincipalRule;

    // threat K13
    #[test]
    fn the_pay_page_is_not_refused_for_cookies_of_other_ports() {
        let any = SocketAddr::new(LOOPBACK, 0);
        let text = configuration(any, Path::new("demo"), any, any);
        let config = Config::parse(&text, Path::new("onlyonce.toml")).unwrap();
        assert_eq!(config.route(&Method::POST, "/charges").principal, PrincipalRule::None);
    }
}
