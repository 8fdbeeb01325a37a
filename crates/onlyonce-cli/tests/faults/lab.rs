//! Gateways, their store, the service behind them and the clients in front of them.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onlyonce::CrashPoint;
use proof::checker::{Verdict, check};
use tempfile::TempDir;

use crate::clients::Clients;
use crate::gateway::Gateway;
use crate::service::Service;
use crate::stores::{Kind, Servers};

/// Everything that a run needs. Dropped from the top: first the gateways, last the files.
pub(crate) struct Lab {
    pub(crate) kind: Kind,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) servers: Servers,
    service: Service,
    _folder: TempDir,
}

/// A gateway, and where it starts again.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) gateway: Gateway,
    address: SocketAddr,
    folder: PathBuf,
}

/// What a gateway does at which place, and at the how many-th time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) point: CrashPoint,
    pub(crate) nth: u32,
    pub(crate) action: &'static str,
}

impl Lab {
    pub(crate) async fn start(kind: Kind) -> Self {
        Self::with_policy(kind, POLICY).await
    }

    /// With these lines under `[policy]`.
    pub(crate) async fn with_policy(kind: Kind, policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let service = Service::start(folder.path()).await;
        let servers = Servers::start(kind, folder.path()).await;
        let names: &[&str] = if kind.is_fleet() { &["a", "b"] } else { &["a"] };
        let mut nodes = Vec::new();
        for name in names {
            let own = folder.path().join(name);
            fs::create_dir(&own).unwrap();
            let top = format!("{}\nsweep = \"300ms\"", servers.settings);
            let gateway = Gateway::with_top(&own, service.address, &top, policy).await;
            nodes.push(Node { name, address: gateway.address, gateway, folder: own });
        }
        let gateways = nodes.iter().map(|node| (node.name, node.address)).collect();
        let clients = Clients::new(folder.path(), gateways);
        Self { kind, nodes, clients, servers, service, _folder: folder }
    }

    /// Brings everything to an end, and has it judged. A history that breaks a promise is kept.
    pub(crate) async fn judge(&self, needs: &[(String, usize)]) -> Verdict {
        let (verdict, text) = self.verdict(needs).await;
        println!("{:?}: {verdict}", self.kind);
        if verdict.violation.is_some() {
            let kept = std::env::temp_dir().join(format!("onlyonce-history-{}", process::id()));
            fs::write(&kept, text).unwrap();
            let errors: Vec<_> = self.nodes.iter().map(|node| node.gateway.errors()).collect();
            panic!("{verdict}\nthe history is in {}\n{}", kept.display(), errors.join("\n"));
        }
        verdict
    }

    /// Brings everything to an end; what the checker says, and of which history.
    pub(crate) async fn verdict(&self, needs: &[(String, usize)]) -> (Verdict, String) {
        self.clients.finish(SETTLE).await;
        let text = self.clients.history.text().unwrap() + &self.service.lines();
        (check(text.lines(), needs), text)
    }
}

impl Node {
    /// Starts it again at its address, with a plan for its end.
    pub(crate) async fn start(&mut self, plan: Option<Plan>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        let listen = self.address.to_string();
        command.args(["serve", "--config", "onlyonce.toml", "--listen", &listen]);
        command.current_dir(&self.folder).stdin(Stdio::null());
        if let Some(Plan { point, nth, action }) = plan {
            command.env("ONLYONCE_CRASH", format!("{}:{nth}:{action}", point.name()));
        }
        self.gateway = Gateway::running(&self.folder, &mut command).await;
    }

    /// The place that it has met, and when, once it has.
    pub(crate) fn met(&self) -> Option<(String, u64)> {
        let errors = self.gateway.errors();
        let (_, rest) = errors.split_once("crash point ")?;
        let (name, rest) = rest.split_once(" at ")?;
        let (at, _) = rest.split_once('\n')?;
        let (seconds, nanos) = at.split_once('.')?;
        let at = seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos.parse::<u64>().ok()?;
        Some((name.to_owned(), at))
    }
}

/// Short leases, so that a pause outlasts one; and a route whose unknown outcomes are sent again.
const POLICY: &str = "lease = \"1s\"\nupstream_timeout = \"20s\"\n[[route]]\nmatch = \"POST /transfers\"\nrecovery = \"redrive\"";
/// After the last fault everything settles within this: two leases until an owner is given up, and time to do it.
const SETTLE: Duration = Duration::from_secs(8);
