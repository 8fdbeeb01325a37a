//! A private Redis.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, unprivileged};
use crate::shim::Shim;
use crate::{folder, free_port};

/// A server of its own.
#[derive(Debug)]
pub struct Redis {
    process: Option<Process>,
    settings: Vec<String>,
    port: u16,
    /// Its own, where a test may set it.
    clock: Option<Shim>,
    /// Dropped last: the server must have ended.
    folder: TempDir,
}

impl Redis {
    /// A new server with these arguments, such as `--appendonly yes`; nothing is saved unless they say so.
    ///
    /// # Panics
    /// If Redis is not installed or does not start.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_by(settings, |_| None)
    }

    /// The same, with a clock that can be set.
    ///
    /// # Panics
    /// As [`Redis::start`], and if there is no C compiler.
    pub fn start_with_clock(settings: &[&str]) -> Self {
        Self::start_by(settings, |folder| Some(Shim::clock(folder)))
    }

    fn start_by(settings: &[&str], clock: impl FnOnce(&Path) -> Option<Shim>) -> Self {
        let settings = settings.iter().map(ToString::to_string).collect();
        let folder = folder::private("redis");
        let clock = clock(folder.path());
        let mut server = Self { process: None, settings, port: free_port(), clock, folder };
        server.start_again();
        server
    }

    /// Starts it again, on the same port.
    ///
    /// # Panics
    /// As [`Redis::start`].
    pub fn start_again(&mut self) {
        let mut command = unprivileged("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", ""]);
        command.arg("--dir").arg(self.folder.path()).args(&self.settings);
        if let Some(clock) = &self.clock {
            clock.put_under(&mut command);
        }
        let log = self.folder.path().join("log");
        self.process = Some(Process::start(command, &log, || is_ready(self.port)));
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

    /// Sets its clock so many seconds ahead of the right time.
    ///
    /// # Panics
    /// If it has no clock of its own.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.clock.as_ref().expect("started with a clock of its own").tell(&seconds.to_ne_bytes());
    }

    /// Sends one inline command and waits for the first line of its answer.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn command(&self, command: &str) -> String {
        let mut connection =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        connection.write_all(format!("{command}\r\n").as_bytes()).expect("it reads");
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log_text).unwrap_or_default()
    }
}

fn is_ready(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut connection) = TcpStream::connect_timeout(&address, PING_WAIT) else {
        return false;
    };
    let mut answer = [0; 5];
    connection.set_read_timeout(Some(PING_WAIT)).is_ok()
        && connection.write_all(b"PING\r\n").is_ok()
        && connection.read_exact(&mut answer).is_ok()
        && answer == *b"+PONG"
}

/// How long one look at a starting server may take.
const PING_WAIT: Duration = Duration::from_secs(1);
