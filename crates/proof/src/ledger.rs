//! A payments service that can be killed: each charge is one line of the oracle.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use http::HeaderMap;
use onlyonce::scope::Principal;
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::{Once, Policy};
use tokio::net::TcpListener;

use crate::oracle::Oracle;

/// A running service, in a process of its own. Killed when dropped.
#[derive(Debug)]
pub struct Ledger {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Ledger {
    /// Starts `program` on the files in `folder`, and waits until it is ready.
    pub fn start(program: &str, folder: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(folder).stdout(Stdio::piped());
        Self::spawn(command)
    }

    /// Starts a command that was prepared by [`start`](Self::start)'s rules.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        match ready(&mut child) {
            Ok(address) => Ok(Self { child, address }),
            Err(error) => {
                // It may be dead already.
                let _ = child.kill();
                child.wait()?;
                Err(error)
            }
        }
    }

    /// `kill -9`, and the end of it.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.kill();
    }
}

/// Waits until it says where it listens.
fn ready(child: &mut Child) -> io::Result<SocketAddr> {
    let stdout = child.stdout.take();
    let stdout = stdout.ok_or_else(|| io::Error::other("stdout is piped"))?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.trim().strip_prefix("ready ").and_then(|address| address.parse().ok());
    address.ok_or_else(|| io::Error::other(format!("not ready: {line:?}")))
}

/// The process itself: serves until it is killed.
pub async fn serve(folder: PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let oracle = Arc::new(Oracle::open(&folder.join("oracle"))?);
    let store = SqliteStore::open(folder.join("onlyonce.db")).await?;
    let once = Once::new(store);
    let caller = |_: &http::request::Parts| Principal::of("test", b"one");
    let app = Router::new()
        .route("/charges", post(charge))
        .with_state(oracle)
        .layer(once.layer(caller, Policy::payments()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// Executes, takes its time, and answers with something that no second execution would repeat.
async fn charge(State(oracle): State<Arc<Oracle>>, headers: HeaderMap) -> impl IntoResponse {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or("none");
    let executed = oracle.execute(key);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..CHARGE_MS_MAX))).await;
    match executed {
        Ok(()) => (http::StatusCode::CREATED, format!("{key} {:032x}", fastrand::u128(..))),
        Err(error) => (http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

const CHARGE_MS_MAX: u64 = 20;
