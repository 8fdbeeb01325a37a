//! A private cluster of Postgres under Patroni: two servers, one of them the synchronous standby, and the etcd between them.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::postgres::tool;
use crate::process::{Process, alongside, kill_tree, run, unprivileged_told, wait_until};
use crate::{folder, free_port};

/// A cluster of its own. Who is the primary is Patroni's affair: nobody here promotes.
#[derive(Debug)]
pub struct Patroni {
    nodes: [Node; 2],
    _etcd: Process,
    /// Dropped last: all of them must have ended.
    folder: TempDir,
}

impl Patroni {
    /// Whether it can be started here; scripts/test unpacks it.
    pub fn is_installed() -> bool {
        let is_there = |path| packages().join(path).exists();
        is_there(ETCD) && is_there(LIBRARIES) && Path::new(PYTHON).exists()
    }

    /// A new cluster; `None` where Patroni or etcd is not installed, and a line says so.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start() -> Option<Self> {
        if !Self::is_installed() {
            println!("SKIPPED: Patroni or etcd is not installed; scripts/test unpacks them");
            return None;
        }
        let folder = folder::private("patroni");
        copy_libraries(folder.path());
        let (etcd, port) = start_etcd(folder.path());
        let nodes = ["one", "two"].map(|name| Node::new(folder.path(), name, port));
        let mut cluster = Self { nodes, _etcd: etcd, folder };
        cluster.start_again();
        Some(cluster)
    }

    /// Starts what is not running, and waits until the standby is synchronous.
    ///
    /// # Panics
    /// If it is not in time.
    pub fn start_again(&mut self) {
        for node in &mut self.nodes {
            node.start();
        }
        self.primary();
        let is_synchronous = |node: &Node| node.answers_ok("/sync");
        wait_until("a synchronous standby", || self.nodes.iter().any(is_synchronous));
    }

    /// Kills the primary, its Postgres and its Patroni, with SIGKILL, as if its machine had lost its power.
    ///
    /// # Panics
    /// If there is none in time.
    pub fn kill_primary(&mut self) {
        let primary = self.primary();
        self.nodes[primary].kill();
    }

    /// The port of the primary on 127.0.0.1, once Patroni says that there is one: what a proxy asks it for.
    ///
    /// # Panics
    /// If there is none in time.
    pub fn primary_port(&self) -> u16 {
        self.nodes[self.primary()].port
    }

    fn primary(&self) -> usize {
        let mut primary = None;
        wait_until("a primary", || {
            primary = self.nodes.iter().position(Node::is_primary);
            primary.is_some()
        });
        primary.expect("it was waited for")
    }

    /// A new, empty database; its address at the primary.
    ///
    /// # Panics
    /// If there already is one.
    pub fn database(&self) -> String {
        let server = format!("postgres://postgres@127.0.0.1:{}", self.primary_port());
        let address = format!("{server}/postgres");
        run(tool("psql"), &["-Xq", "-c", "CREATE DATABASE test", &address]);
        format!("{server}/test")
    }

    /// Its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// What would be a machine: a Patroni, and the Postgres that it runs.
#[derive(Debug)]
struct Node {
    process: Option<Process>,
    folder: PathBuf,
    port: u16,
    patroni_port: u16,
}

impl Node {
    fn new(cluster: &Path, name: &str, etcd_port: u16) -> Self {
        let folder = cluster.join(name);
        folder::make(&folder);
        let node = Self { process: None, folder, port: free_port(), patroni_port: free_port() };
        folder::write(&node.folder.join(SETTINGS), &node.settings(name, etcd_port), 0o600);
        node
    }

    /// If it is not running.
    fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        // When it is told to end it ends its Postgres, which is not its child.
        let mut command = unprivileged_told("TERM", PYTHON);
        command.args(["-m", "patroni"]).arg(self.folder.join(SETTINGS));
        command.env("PYTHONPATH", self.folder.with_file_name("python"));
        let log = self.folder.join("log");
        let is_ready = || status(self.patroni_port, "/liveness").is_ok();
        self.process = Some(Process::start(command, &log, is_ready));
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill_tree();
        }
        // Its Postgres is not its child, so that it outlives a restart of Patroni.
        if let Some(id) = self.postmaster() {
            kill_tree(id);
        }
    }

    /// The process id of its Postgres, if it runs. A server that was killed leaves the file with its id, which another program
    /// may have got since.
    fn postmaster(&self) -> Option<u32> {
        let data = self.folder.join("data");
        let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let id = file.lines().next()?.parse().ok()?;
        let command = fs::read(format!("/proc/{id}/cmdline")).ok()?;
        String::from_utf8_lossy(&command).contains(data.to_str()?).then_some(id)
    }

    fn is_primary(&self) -> bool {
        self.answers_ok("/primary")
    }

    fn answers_ok(&self, question: &str) -> bool {
        self.process.is_some() && status(self.patroni_port, question).is_ok_and(|code| code == 200)
    }

    fn settings(&self, name: &str, etcd_port: u16) -> String {
        let Self { folder, port, patroni_port, .. } = self;
        let programs = tool("postgres").with_file_name("");
        format!(
            "scope: onlyonce
name: {name}
restapi: {{listen: '127.0.0.1:{patroni_port}', connect_address: '127.0.0.1:{patroni_port}'}}
etcd3: {{host: '127.0.0.1:{etcd_port}'}}
watchdog: {{mode: 'off'}}
bootstrap:
  dcs:
{SHARED}
  initdb: [{{encoding: UTF8}}, {{auth: trust}}, no-locale, data-checksums]
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  bin_dir: {programs:?}
  data_dir: {data:?}
  pgpass: {pgpass:?}
  authentication: {{superuser: {{username: postgres}}, replication: {{username: replicator}}}}
  basebackup: [{{checkpoint: fast}}]
  parameters: {{unix_socket_directories: ''}}
  pg_hba: [host all all 127.0.0.1/32 trust, host replication all 127.0.0.1/32 trust]
",
            data = folder.join("data"),
            pgpass = folder.join("pgpass"),
        )
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What Patroni is told once, for both. A primary that says nothing for `ttl` seconds, Patroni's least, is given up. One that
/// cannot reach etcd for `retry_timeout` seconds steps down: long, so that a busy machine makes no failover of its own.
const SHARED: &str = "    ttl: 20
    loop_wait: 1
    retry_timeout: 8
    synchronous_mode: true
    synchronous_mode_strict: false
    postgresql: {use_pg_rewind: true, parameters: {max_connections: 200, shared_buffers: 128MB}}";

/// Ready, and the port where it listens.
fn start_etcd(cluster: &Path) -> (Process, u16) {
    let (port, peers) = (free_port(), format!("http://127.0.0.1:{}", free_port()));
    let clients = format!("http://127.0.0.1:{port}");
    let mut command = alongside(packages().join(ETCD));
    command.arg("--data-dir").arg(cluster.join("etcd"));
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.arg("--initial-cluster").arg(format!("default={peers}"));
    let is_ready = || status(port, "/health").is_ok_and(|code| code == 200);
    (Process::start(command, &cluster.join("etcd.log"), is_ready), port)
}

/// The unprivileged user may not be allowed to enter the folder of this repository.
fn copy_libraries(cluster: &Path) {
    let mut cp = Command::new("cp");
    cp.args(["-r", "--preserve=mode,timestamps"]).arg(packages().join(LIBRARIES));
    let status = cp.arg(cluster.join("python")).status();
    assert!(status.is_ok_and(|status| status.success()), "Patroni cannot be copied");
}

/// Where scripts/test unpacks them.
fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/patroni")
}

/// The status of the answer to `GET question`.
fn status(port: u16, question: &str) -> io::Result<u16> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    connection.set_read_timeout(Some(ANSWER_WAIT))?;
    connection.write_all(format!("GET {question} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let code = answer.get(9..12).and_then(|code| code.parse().ok());
    code.ok_or_else(|| io::Error::other("no HTTP"))
}

const ETCD: &str = "usr/bin/etcd";
/// Patroni, and what it imports. They are of the same release as the system's Python.
const LIBRARIES: &str = "usr/lib/python3/dist-packages";
const PYTHON: &str = "/usr/bin/python3";
const SETTINGS: &str = "patroni.yml";
/// How long one answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
