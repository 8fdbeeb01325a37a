//! The service as a process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use proof::client::{self, Answer, SendError};

/// Builds the example as its users do, and returns its program.
pub(crate) fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let (example, target) = (root.join("examples/charges"), root.join("target/charges"));
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(example.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("DATABASE_URL")
        .status();
    assert!(built.unwrap().success(), "examples/charges does not build");
    target.join("debug/charges")
}

pub(crate) struct Service {
    child: Option<Child>,
    pub(crate) address: SocketAddr,
}

impl Service {
    pub(crate) fn start(program: &Path, settings: &[(&str, String)]) -> Self {
        let mut command = Command::new(program);
        command.envs(settings.iter().map(|(name, value)| (name, value)));
        command.env("LISTEN", "127.0.0.1:0").stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child: Some(child), address }
    }

    /// The process, for whoever kills it.
    pub(crate) fn give_up(&mut self) -> Child {
        self.child.take().unwrap()
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        key: &str,
        body: &str,
    ) -> Result<Answer, SendError> {
        client::post(self.address, path, key, body).await
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
