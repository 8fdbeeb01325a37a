//! A private emulator of DynamoDB: dynoxide with a file, or moto, which keeps everything in memory.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, alongside};
use crate::{folder, free_port};

/// An emulator of its own.
#[derive(Debug)]
pub struct DynamoDb {
    process: Option<Process>,
    emulator: Emulator,
    port: u16,
    /// Dropped last: the emulator must have ended.
    folder: TempDir,
}

/// Which program emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulator {
    /// Keeps its tables in a file, also when it is killed.
    Dynoxide,
    /// Forgets its tables when it ends: a second opinion. It takes one call at a time, because its conditional updates are
    /// not atomic when they race.
    Moto,
}

impl Emulator {
    /// Whether it can be started here; scripts/test installs it.
    pub fn is_installed(self) -> bool {
        let has_moto = || self.program().with_file_name("moto_server").exists();
        self.program().exists() && (self != Self::Moto || has_moto())
    }

    fn program(self) -> PathBuf {
        let emulators = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dynamodb");
        match self {
            Self::Dynoxide => emulators.join("package/dynoxide"),
            Self::Moto => emulators.join("python/bin/python"),
        }
    }
}

impl DynamoDb {
    /// A new dynoxide; `None` where it is not installed, and a line says so.
    pub fn start() -> Option<Self> {
        Self::start_as(Emulator::Dynoxide)
    }

    /// A new emulator; `None` where it is not installed, and a line says so.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_as(emulator: Emulator) -> Option<Self> {
        if !emulator.is_installed() {
            println!("SKIPPED: {emulator:?} is not installed; scripts/test installs it");
            return None;
        }
        let (folder, port) = (folder::private("dynamodb"), free_port());
        let mut server = Self { process: None, emulator, port, folder };
        server.start_again();
        Some(server)
    }

    /// Starts it again, on the same port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        let (port, folder) = (self.port.to_string(), self.folder.path());
        let mut command = alongside(self.emulator.program());
        match self.emulator {
            Emulator::Dynoxide => {
                command.args(["serve", "--host", "127.0.0.1", "--port", &port, "--db-path"]);
                command.arg(folder.join("tables.db"))
            }
            Emulator::Moto => command.args(["-c", ONE_AT_A_TIME, &port]),
        };
        let log = folder.join("log");
        self.process = Some(Process::start(command, &log, || self.is_ready()));
    }

    fn is_ready(&self) -> bool {
        self.try_call("ListTables", "{}").is_ok_and(|(status, _)| status == 200)
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

    /// Calls `action` with a body in JSON: the status and the body of the answer.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn call(&self, action: &str, body: &str) -> (u16, String) {
        self.try_call(action, body).expect("the emulator answers")
    }

    fn try_call(&self, action: &str, body: &str) -> std::io::Result<(u16, String)> {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        connection.set_read_timeout(Some(CALL_WAIT))?;
        let request = format!(
            "POST / HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nX-Amz-Target: DynamoDB_20120810.{action}\r\n\
             X-Amz-Date: 20260101T000000Z\r\nContent-Type: application/x-amz-json-1.0\r\n\
             Authorization: {AUTHORIZATION}\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        connection.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((status.ok_or_else(|| std::io::Error::other("no HTTP"))?, body.to_owned()))
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// `moto_server` has a thread for each call.
const ONE_AT_A_TIME: &str = "import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
app = DomainDispatcherApplication(create_backend_app)
run_simple('127.0.0.1', int(sys.argv[1]), app, threaded=False)
";
/// The emulators want a signature, and believe any.
const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, \
                             SignedHeaders=host;x-amz-date, Signature=00";
/// How long one call may take.
const CALL_WAIT: Duration = Duration::from_secs(20);
