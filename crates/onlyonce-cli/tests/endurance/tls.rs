//! TLS from outside: what openssl and rustls are told by a gateway that has certificates.

mod admin;
mod authority;
mod callers;
mod certificates;
mod client;
mod protocols;
mod reload;
mod service;
mod stop;
mod strangers;
mod upstream;

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use self::authority::Authority;
use self::client::Client;
use crate::gateway::{Gateway, store};
use crate::upstream::Upstream;

/// A gateway with TLS in front of an upstream, and who signs certificates for it and for its clients.
struct Lab {
    folder: TempDir,
    authority: Authority,
    upstream: Upstream,
    gateway: Gateway,
}

/// Without client certificates.
const PLAIN: &str = "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n";
/// With them.
const MUTUAL: &str =
    "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\nclient_ca = \"authority.pem\"\n";

impl Lab {
    /// With these tables in its configuration.
    async fn start(tables: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        authority.server("server", "localhost");
        let upstream = Upstream::start().await;
        configure(&folder, &upstream, tables);
        let gateway = Gateway::listening(folder.path(), "127.0.0.1:0").await;
        Self { folder, authority, upstream, gateway }
    }

    fn configure(&self, tables: &str) {
        configure(&self.folder, &self.upstream, tables);
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// A client that trusts the authority, and shows this certificate.
    fn client(&self, own: Option<&str>) -> Client {
        Client::new(&self.path("authority.pem"), own.map(|own| self.path(own)))
    }

    /// Asks for a reload, and waits for the word about it.
    async fn reload(&self) -> String {
        let told = || self.gateway.errors().matches("SIGHUP").count();
        let before = told();
        self.gateway.hang_up();
        crate::until("a word about the reload", || told() > before).await;
        let errors = self.gateway.errors();
        errors.lines().rfind(|line| line.contains("SIGHUP")).unwrap().to_owned()
    }
}

fn configure(folder: &TempDir, upstream: &Upstream, tables: &str) {
    let text = format!(
        "upstream = \"http://{}\"\nstore = \"sqlite:{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{tables}",
        upstream.address,
        store(folder.path()).display()
    );
    fs::write(folder.path().join("onlyonce.toml"), text).unwrap();
}
