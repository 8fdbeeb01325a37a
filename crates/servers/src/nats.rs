//! A private NATS server with JetStream.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, alongside};
use crate::{brokers, folder, free_port};

/// A server of its own.
#[derive(Debug)]
pub struct Nats {
    process: Option<Process>,
    port: u16,
    /// Dropped last: the server must have ended.
    folder: TempDir,
}

impl Nats {
    /// Whether it can be started here; scripts/test installs it.
    pub fn is_installed() -> bool {
        program().exists()
    }

    /// A new server with these lines in its configuration, such as `max_payload: 4096`. Its streams are kept when it is
    /// killed.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn start(settings: &str) -> Self {
        let (folder, port) = (folder::private("nats"), free_port());
        let streams = folder.path().join("streams");
        let settings = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {streams:?}, sync_interval: always }}\n{settings}\n"
        );
        folder::write(&folder.path().join("nats.conf"), &settings, 0o600);
        let mut server = Self { process: None, port, folder };
        server.start_again();
        server
    }

    /// Starts it again, on the same port.
    ///
    /// # Panics
    /// As [`Nats::start`].
    pub fn start_again(&mut self) {
        let mut command = alongside(program());
        command.arg("-c").arg(self.folder.path().join("nats.conf"));
        let is_ready = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        self.process = Some(Process::start(command, &self.folder.path().join("log"), is_ready));
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill_tree();
        }
    }

    /// Stops it from answering; its connections stay open.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after a pause.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

fn program() -> PathBuf {
    brokers().join("nats-server")
}
