//! A private pgbouncer.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use tempfile::TempDir;

use crate::process::{Process, unprivileged};
use crate::{Postgres, folder, free_port};

/// A pooler in front of a [`Postgres`].
#[derive(Debug)]
pub struct Pgbouncer {
    _process: Process,
    port: u16,
    /// Dropped last: the pooler must have ended.
    _folder: TempDir,
}

impl Pgbouncer {
    /// A new pooler with this `pool_mode`: `session` or `transaction`.
    ///
    /// # Panics
    /// If pgbouncer is not installed or does not start.
    pub fn start(postgres: &Postgres, pool_mode: &str) -> Self {
        let (folder, port) = (folder::private("pgbouncer"), free_port());
        let file = folder.path().join("pgbouncer.ini");
        folder::write(&file, &settings(postgres.port(), port, pool_mode), 0o600);
        let mut command = unprivileged(program());
        command.arg(&file);
        let is_ready = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        let process = Process::start(command, &folder.path().join("log"), is_ready);
        Self { _process: process, port, _folder: folder }
    }

    /// The address of `database`, which may be given as the address that Postgres gave it.
    pub fn url(&self, database: &str) -> String {
        let name = database.rsplit('/').next().unwrap_or(database);
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }
}

/// Debian keeps it where only root's PATH leads.
fn program() -> &'static Path {
    let debian = Path::new("/usr/sbin/pgbouncer");
    if debian.exists() { debian } else { Path::new("pgbouncer") }
}

fn settings(postgres: u16, port: u16, pool_mode: &str) -> String {
    format!(
        "[databases]\n* = host=127.0.0.1 port={postgres} user=postgres\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = any\npool_mode = {pool_mode}\nmax_client_conn = 200\n\
         ; Which sqlx sends, as JDBC does.\nignore_startup_parameters = extra_float_digits\n"
    )
}
