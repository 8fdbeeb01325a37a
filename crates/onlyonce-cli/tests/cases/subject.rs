//! What is tested: the gateway's own binary, or the library in an axum server.

mod forward;
mod process;

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use onlyonce::Once;
use onlyonce::store::sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::forward::{caller, forward};
use self::process::Process;
use crate::answer::Answer;
use crate::client::{Ask, Connection, send_http2};
use crate::profile::{self, Profile};
use crate::upstream::Upstream;

/// On which of the two a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gateway,
    Library,
}

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
            Self::Gateway => Running::Gateway(Process::start(folder.path(), url, profile).await),
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
    Gateway(Process),
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

    /// How many callers wait for another's answer, where that can be seen.
    pub(crate) fn waiting(&self) -> Option<usize> {
        match &self.running {
            Running::Gateway(_) => None,
            Running::Library(library) => Some(library.once.waiting()),
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

    /// Everything that the gateway has written to its outputs, after its end.
    pub(crate) async fn end_and_read_logs(self) -> String {
        let Running::Gateway(mut process) = self.running else {
            panic!("only a process has outputs");
        };
        process.kill().await;
        process::logs(self.folder.path())
    }
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
        let once = Once::new(store);
        let upstream = u.address;
        let app = Router::new()
            .fallback(move |request| forward(upstream, request))
            .layer(once.layer(caller, profile::policy(profile)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            once,
            _server: server,
        }
    }
}
