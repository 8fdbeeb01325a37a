//! A private Postgres.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, is_root, run, unprivileged};
use crate::shim::Shim;
use crate::{folder, free_port};

/// A server of its own, as durable as Postgres is by default.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    settings: Vec<String>,
    port: u16,
    databases: AtomicU32,
    /// Its own, where a test may spoil it.
    disk: Option<Shim>,
    /// Dropped last: the server must have ended.
    folder: TempDir,
}

/// What a disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// What it should.
    Sound,
    /// There is no room for another page; what was written ahead has its own.
    Full,
    /// The write-ahead log is not synced: the server panics, and recovers once it can.
    NoSync,
}

impl Postgres {
    /// A new server.
    ///
    /// # Panics
    /// If Postgres is not installed or does not start.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A new server with `settings` of the form `name=value`.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    pub fn start_with(settings: &[&str]) -> Self {
        Self::in_folder(new_folder(), settings, None)
    }

    /// A new server whose files are as Postgres makes them, for measurements.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    pub fn start_to_measure() -> Self {
        let folder = folder::private("postgres");
        make_cluster(&folder.path().join("data"), &[]);
        let server = Self::in_folder(folder, &[], None);
        server.sql("postgres", &format!("CREATE DATABASE {}", name_of(0)));
        server
    }

    /// A new server on a disk that can be spoiled.
    ///
    /// # Panics
    /// As [`Postgres::start`], and if there is no C compiler.
    pub fn start_with_disk() -> Self {
        let folder = new_folder();
        let disk = Shim::disk(folder.path());
        Self::in_folder(folder, &[], Some(disk))
    }

    /// What its disk does from now on.
    ///
    /// # Panics
    /// If it has no disk of its own.
    pub fn set_disk(&self, disk: Disk) {
        let state = match disk {
            Disk::Sound => b"-",
            Disk::Full => b"f",
            Disk::NoSync => b"s",
        };
        self.disk.as_ref().expect("started with a disk of its own").tell(state);
    }

    /// A copy of this server that follows it, as `name` in its `synchronous_standby_names`.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    pub fn standby(&self, name: &str) -> Self {
        let folder = folder::private("postgres");
        let data = folder.path().join("data");
        let primary =
            format!("host=127.0.0.1 port={} user=postgres application_name={name}", self.port);
        run(
            tool("pg_basebackup"),
            &["-R", "-X", "stream", "-c", "fast", "-d", &primary, "-D", text(&data)],
        );
        Self::in_folder(folder, &[], None)
    }

    fn in_folder(folder: TempDir, settings: &[&str], disk: Option<Shim>) -> Self {
        let settings = settings.iter().map(ToString::to_string).collect();
        let databases = AtomicU32::new(0);
        let mut server =
            Self { process: None, settings, port: free_port(), databases, disk, folder };
        server.start_again();
        server
    }

    /// Starts it again, on the same port.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    pub fn start_again(&mut self) {
        let mut command = unprivileged(tool("postgres"));
        command.arg("-D").arg(self.data());
        for setting in DEFAULTS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.args(["-c", &format!("port={}", self.port)]);
        if let Some(disk) = &self.disk {
            disk.put_under(&mut command);
        }
        let log = self.folder.path().join("log");
        let process = Process::start(command, &log, || self.is_ready());
        // At once, but its children first: they are not left to anyone else.
        self.process = Some(process.ended_by(Signal::QUIT));
    }

    fn is_ready(&self) -> bool {
        let port = self.port.to_string();
        let mut asked = Command::new(tool("pg_isready"));
        let output = asked.args(["-h", "127.0.0.1", "-p", &port]).output();
        output.is_ok_and(|output| output.status.success())
    }

    /// Kills it and all of its children with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill_tree();
        }
    }

    /// Ends it in order, without waiting for its clients.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end(Signal::INT);
        }
    }

    /// Makes a standby the primary.
    ///
    /// # Panics
    /// If it is not a standby.
    pub fn promote(&self) {
        run(tool("pg_ctl"), &["promote", "-w", "-D", text(&self.data())]);
    }

    /// A new, empty database; its address.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = name_of(number);
        // The first one comes with the cluster.
        if number > 0 {
            self.sql("postgres", &format!("CREATE DATABASE {name}"));
        }
        self.url_of(&name)
    }

    /// The address of the database that is always there.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its files.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log_text).unwrap_or_default()
    }

    /// Gives a database a clock that [`set_clock`](Self::set_clock) sets: of whoever asks for `clock_timestamp()` there, by the
    /// server's own name, because our sessions look for names nowhere else.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn own_clock(&self, database: &str) {
        self.sql(
            database,
            "CREATE SCHEMA clock; CREATE TABLE clock.ahead (by interval NOT NULL); INSERT INTO clock.ahead VALUES ('0');
             ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO true_clock_timestamp;
             CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
               AS 'SELECT true_clock_timestamp() + by FROM clock.ahead'",
        );
    }

    /// Sets the [clock of a database](Self::own_clock) so far ahead of the machine's.
    ///
    /// # Panics
    /// If it has no clock of its own.
    pub fn set_clock(&self, database: &str, ahead: &str) {
        self.sql(database, &format!("UPDATE clock.ahead SET by = '{ahead}'"));
    }

    /// Puts a function, an operator, a type and a table of every name of the server's own into the schema `public` of this
    /// database, as a stranger could. Returns the address of sessions that look there first.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn make_hostile(&self, database: &str) -> String {
        self.sql(database, include_str!("hostile.sql"));
        format!("{database}?options=-csearch_path%3Dpublic,pg_catalog")
    }

    /// Whether anything that [`make_hostile`](Self::make_hostile) has made was ever called. The error of the call names it.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn has_caught(&self, database: &str) -> bool {
        self.sql(database, "SELECT is_called FROM public.caught") == "t"
    }

    /// Runs `statements` in `database` and returns the rows, a line each.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let url =
            if database.contains("://") { database.to_owned() } else { self.url_of(database) };
        let rows = run(tool("psql"), &["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statements, &url]);
        rows.trim_end().to_owned()
    }
}

/// With a new cluster in it.
fn new_folder() -> TempDir {
    let folder = folder::private("postgres");
    copy(&template(), &folder.path().join("data"));
    folder
}

/// A new cluster, made once for this machine and copied for each server. Hundreds of tests copy it, so it is small: short
/// segments of the log, the first database of a test already there, and no database that nobody opens.
fn template() -> PathBuf {
    let version = run(tool("postgres"), &["--version"]);
    let version: String = version.chars().filter(char::is_ascii_digit).collect();
    let user = if is_root() { "nobody" } else { "user" };
    let path = env::temp_dir().join(format!("onlyonce-small-template-{user}-{version}"));
    if !path.exists() {
        let folder = folder::private("initdb");
        make_cluster(&folder.path().join("data"), &["--wal-segsize=1"]);
        let short_log = ["min_wal_size=2MB", "max_wal_size=2MB"];
        let mut server = Postgres::in_folder(folder, &short_log, None);
        for statement in [
            &format!("CREATE DATABASE {}", name_of(0)),
            "ALTER DATABASE template0 IS_TEMPLATE false",
            "DROP DATABASE template0",
        ] {
            server.sql("postgres", statement);
        }
        server.stop();
        // Someone else's is as good as ours.
        let _ = fs::rename(server.data(), &path);
    }
    path
}

fn make_cluster(data: &Path, more: &[&str]) {
    let how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-D", text(data)];
    run(tool("initdb"), &[&how, more].concat());
}

/// The name of a test's database.
fn name_of(number: u32) -> String {
    format!("test_{number}")
}

fn copy(from: &Path, to: &Path) {
    run("cp", &["-r", text(from), text(to)]);
    run("chmod", &["700", text(to)]);
}

/// A program of the newest Postgres that is installed; Debian keeps them off the PATH.
pub(crate) fn tool(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(version);
    newest.map_or_else(|| PathBuf::from(name), |path| path.join("bin").join(name))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have readable names")
}

/// Loopback only, room for many clients, and statements counted.
const DEFAULTS: [&str; 6] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "shared_buffers=128MB",
    "shared_preload_libraries=pg_stat_statements",
    "max_wal_size=4GB",
];
