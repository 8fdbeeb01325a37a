//! What is tested: the gateway's own binary, or the library in an axum server.

mod asker;
mod forward;
mod issue;
mod process;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use onlyonce::Once;
use onlyonce::scope::Secret;
use onlyonce::store::sqlite::SqliteStore;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::asker::Asker;
use self::forward::{caller, forward};
use self::issue::issue;
use self::process::Process;
use crate::answer::Answer;
use crate::client::{Ask, Connection, Http2, send_http2};
use crate::profile::{self, Profile, Set};
use crate::upstream::Upstream;
use crate::within;

/// On which of the two a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gateway,
    Library,
}

/// What the process has in `ONLYONCE_SECRET`.
pub(crate) const SECRET: &str = "a secret of the test, and long enough for one";

impl Kind {
    /// The subject with this policy, an empty store, and an upstream of its own.
    pub(crate) async fn start(self, profile: Profile<'_>) -> Subject {
        self.start_before(Upstream::start().await, profile).await
    }

    /// The same, with this upstream.
    pub(crate) async fn start_before(self, u: Upstream, profile: Profile<'_>) -> Subject {
        let url = format!("http://{}", u.address);
        self.start_at(&url, u, profile).await
    }

    /// The same, where the subject knows its upstream by this address.
    pub(crate) async fn start_at(self, url: &str, u: Upstream, profile: Profile<'_>) -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let running = match self {
            Self::Gateway => {
                Running::Gateway(Box::new(Process::start(folder.path(), url, profile).await))
            }
            Self::Library => Running::Library(Library::start(folder.path(), &u, profile).await),
        };
        Subject { u, running, folder }
    }
}

/// A running subject. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) u: Upstream,
    running: Running,
    folder: TempDir,
}

#[derive(Debug)]
enum Running {
    Gateway(Box<Process>),
    Library(Library),
}

impl Subject {
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.running {
            Running::Gateway(process) => process.address,
            Running::Library(library) => library.address,
        }
    }

    /// Sends on a connection of its own. There must be an answer.
    pub(crate) async fn send(&self, ask: &Ask) -> Answer {
        self.try_send(ask).await.expect("a whole answer")
    }

    pub(crate) async fn try_send(&self, ask: &Ask) -> io::Result<Answer> {
        self.connect().await.send(ask).await
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.address()).await
    }

    pub(crate) async fn http2(&self) -> Http2 {
        Http2::open(self.address()).await
    }

    pub(crate) async fn send_http2(&self, ask: &Ask) -> Answer {
        send_http2(self.address(), ask).await
    }

    /// `POST /t` with this key and body.
    pub(crate) async fn post(&self, key: &str, body: &str) -> Answer {
        self.send(&Ask::post(body).key(key)).await
    }

    /// How often `/t` was executed.
    pub(crate) fn n(&self) -> usize {
        self.u.count("/t")
    }

    /// What the gateway said when it was ready.
    pub(crate) fn first_line(&self) -> &str {
        &self.process().line
    }

    /// Until so many callers wait for another's answer.
    pub(crate) async fn until_waiting(&self, count: usize) {
        within("callers to wait, or to leave", async {
            while self.waiting().await != count {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    async fn waiting(&self) -> usize {
        match &self.running {
            Running::Gateway(process) => gauge(&metrics(process.admin).await, "onlyonce_waiting"),
            Running::Library(library) => library.once.waiting(),
        }
    }

    /// Ends the gateway as a power cut does, and starts it anew on the same store.
    pub(crate) async fn kill_and_restart(&mut self) {
        let Running::Gateway(process) = &mut self.running else {
            panic!("only a process can be killed");
        };
        process.kill().await;
        process.restart().await;
    }

    /// Ends the gateway, and starts it anew on the same store with this policy.
    pub(crate) async fn reconfigure(&mut self, profile: Profile<'_>) {
        let Running::Gateway(process) = &mut self.running else {
            panic!("only a process has a configuration");
        };
        process.kill().await;
        process.configure(&format!("http://{}", self.u.address), profile);
        process.restart().await;
    }

    /// Stops the gateway where it is, as a paused virtual machine would.
    pub(crate) fn pause(&self) {
        self.process().signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.process().signal(Signal::CONT);
    }

    /// A number on the gateway's page of metrics.
    pub(crate) async fn metric(&self, name: &str) -> usize {
        gauge(&metrics(self.process().admin).await, name)
    }

    /// How many records the store has.
    pub(crate) async fn records(&self) -> usize {
        match &self.running {
            Running::Gateway(process) => {
                let mut connection = Connection::open(process.admin).await;
                let ask = Ask::without_host("").header("Host", "localhost");
                let ask = ask.to("/api/v1/operations").method("GET");
                let page = connection.send(&ask).await.expect("the operations").fresh(200).json();
                page["operations"].as_array().expect("a list").len()
            }
            Running::Library(library) => {
                let census = library.once.operations().census().await.unwrap();
                usize::try_from(census.records).unwrap()
            }
        }
    }

    /// Whether the gateway says that it is ready.
    pub(crate) async fn is_ready(&self) -> bool {
        let mut connection = Connection::open(self.process().admin).await;
        let answer = connection.send(&Ask::bare("GET", "/health/ready")).await;
        answer.expect("an answer").status == 200
    }

    fn process(&self) -> &Process {
        match &self.running {
            Running::Gateway(process) => process,
            Running::Library(_) => panic!("the library has no process of its own"),
        }
    }

    /// Where the gateway has its store, its configuration and its outputs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where operators ask.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.process().admin
    }

    /// Everything that the gateway tells its operator: its metrics, then, after its end, its outputs.
    pub(crate) async fn end_and_read_logs(self) -> String {
        let Running::Gateway(mut process) = self.running else {
            panic!("only a process has outputs");
        };
        let metrics = metrics(process.admin).await;
        assert!(metrics.contains("onlyonce_executed_total"), "{metrics}");
        process.kill().await;
        metrics + &process::logs(self.folder.path())
    }
}

async fn metrics(admin: SocketAddr) -> String {
    let mut connection = Connection::open(admin).await;
    let ask = Ask::without_host("").header("Host", "localhost").to("/metrics").method("GET");
    let answer = connection.send(&ask).await;
    let answer = answer.expect("the metrics").fresh(200);
    String::from_utf8(answer.body.to_vec()).unwrap()
}

fn gauge(page: &str, name: &str) -> usize {
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.next().unwrap_or_else(|| panic!("no {name} in {page}"));
    value.trim().parse().unwrap()
}

/// The library in an axum server whose handler asks the upstream.
#[derive(Debug)]
struct Library {
    address: SocketAddr,
    once: Once,
    _server: JoinSet<()>,
}

impl Library {
    async fn start(folder: &Path, u: &Upstream, profile: Profile<'_>) -> Self {
        let store = SqliteStore::open(folder.join("onlyonce.db")).await.unwrap();
        let once = Once::builder(store);
        let once = match profile.contains(&Set::Secret) {
            true => once.with_secret(Secret::new("a secret of the test")).build(),
            false => once.build(),
        };
        let upstream = u.address;
        let layer = once.layer(caller, profile::policy(profile));
        let issuer = layer.clone();
        // The fallback below passes every method and path on.
        let layer = layer.with_locations_fetched();
        let app = Router::new()
            .fallback(move |request| forward(upstream, request))
            .layer(layer.with_reconciler(Asker(upstream)))
            .route("/idempotency-tokens", post(async move |request| issue(&issuer, &request)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, once, _server: server }
    }
}
