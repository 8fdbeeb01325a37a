//! The proxies, each a process of its own that is stopped by its id: nginx, and the gateway.

use std::io::{self, BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A proxy that serves.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens for operators.
    pub admin: Option<SocketAddr>,
    process: Child,
}

impl Proxy {
    /// `onlyonce serve` as it was built beside this program, with this store.
    ///
    /// # Errors
    /// If it does not start.
    pub fn gateway(upstream: SocketAddr, store: &str) -> io::Result<Self> {
        Self::gateway_by(PLAIN, upstream, store)
    }

    /// The same, with bearer tokens that are verified and a seal over the store.
    ///
    /// # Errors
    /// If it does not start.
    pub fn sealed_gateway(upstream: SocketAddr, store: &str) -> io::Result<Self> {
        Self::gateway_by(SEALED, upstream, store)
    }

    fn gateway_by(config: &str, upstream: SocketAddr, store: &str) -> io::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("onlyonce");
        let mut process = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream"])
            .arg(format!("http://{upstream}"))
            .arg(format!("--store={store}"))
            .args(["--config", config])
            .env("ONLYONCE_BENCH_JWT", "a secret of the benchmark, 32 bytes and more")
            .env("ONLYONCE_BENCH_SEAL", "ab".repeat(32))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), NOT_BUILT))?;
        let mut ready = String::new();
        let output = process.stdout.take().expect("its output is a pipe");
        BufReader::new(output).read_line(&mut ready)?;
        let after = |word| {
            let (_, rest) = ready.split_once(word)?;
            rest.split(',').next()?.trim().parse().ok()
        };
        let (address, admin) = (after("listening on http://"), after("admin http://"));
        let address = address.ok_or_else(|| io::Error::other(ready.clone()))?;
        Ok(Self { address, admin, process })
    }

    /// nginx that passes everything on, with two workers and connections that are kept on both sides.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn nginx(upstream: SocketAddr, directory: &Path) -> io::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let settings = directory.join("nginx.conf");
        std::fs::write(&settings, nginx_settings(address, upstream))?;
        let process = Command::new("nginx")
            .arg("-p")
            .arg(directory)
            .arg("-c")
            .arg(&settings)
            .args(["-e", "stderr"])
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), NO_NGINX))?;
        let proxy = Self { address, admin: None, process };
        proxy.wait_until_it_listens()?;
        Ok(proxy)
    }

    /// The processor time that it and its children have taken so far.
    pub fn cpu(&self) -> Duration {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let children = children.unwrap_or_default();
        let ids = children.split_whitespace().filter_map(|id| id.parse().ok());
        ids.chain([id]).map(cpu_of).sum()
    }

    fn wait_until_it_listens(&self) -> io::Result<()> {
        for _ in 0..START_LOOKS_MAX {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            thread::sleep(START_PAUSE);
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for Proxy {
    /// Asked to end, because nginx ends its workers only then.
    fn drop(&mut self) {
        let id = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.process.wait();
    }
}

fn cpu_of(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before the last parenthesis may hold anything; user and system ticks are the 12th and 13th after.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

fn nginx_settings(address: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "daemon off; worker_processes 2; pid nginx.pid; error_log stderr error;
        events {{ worker_connections 4096; }}
        http {{
            access_log off; keepalive_requests 1000000000;
            client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
            uwsgi_temp_path uwsgi; scgi_temp_path scgi;
            upstream service {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; }}
            server {{
                listen {address} reuseport;
                location / {{
                    proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection \"\";
                }}
            }}
        }}\n"
    )
}

const PLAIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml");
const SEALED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gateway-sealed.toml");
const NOT_BUILT: &str =
    "no `onlyonce` beside this program; build it with `cargo build --release -p onlyonce-cli`";
const NO_NGINX: &str = "nginx is not installed; `apt-get install nginx-light` installs it";
const START_LOOKS_MAX: usize = 200;
const START_PAUSE: Duration = Duration::from_millis(25);
/// Linux's USER_HZ, the same on every machine.
const TICKS_PER_SECOND: u64 = 100;
