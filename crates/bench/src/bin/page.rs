//! The gateway with and without somebody who looks at the operator's page: rounds of both in turn.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Parser;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce_bench::load;
use onlyonce_bench::proxy::Proxy;
use onlyonce_bench::request::{Keys, Requests};
use onlyonce_bench::stats::{median, spread};
use onlyonce_bench::upstream::Upstream;

/// Requests per second while the page is open ÷ without it.
#[derive(Parser)]
struct Args {
    /// Rounds of each.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Where the gateway keeps its records; a local disk.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let directory = tempfile::tempdir_in(&args.directory)?;
    let upstream = Upstream::start()?;
    let store = format!("sqlite:{}", directory.path().join("gateway.db").display());
    let gateway = Proxy::gateway(upstream.address, &store)?;
    let admin = gateway.admin.ok_or("the gateway has no admin listener")?;
    let rate = || {
        let length = Duration::from_secs_f64(args.seconds);
        let keys = Keys::New(SystemClock.wall().as_ms().unsigned_abs());
        let requests = |thread| Requests::new(gateway.address, keys.on(thread));
        load::run_on_threads(GENERATORS, args.connections, length, requests).rate
    };
    rate();
    println!("fresh req/s without a page, with one, ratio, bytes of events");
    let mut ratios = Vec::new();
    for round in 0..args.rounds {
        let seen = || {
            let viewer = Viewer::open(admin);
            let with = rate();
            (with, viewer.close())
        };
        let (without, (with, bytes)) = match round % 2 {
            0 => (rate(), seen()),
            _ => {
                let seen = seen();
                (rate(), seen)
            }
        };
        println!("  {without:>8.0} {with:>8.0}  {:>5.3}  {bytes}", with / without);
        ratios.push(with / without);
    }
    let (low, high) = spread(ratios.iter().copied());
    println!("median {:.3} ({low:.3} to {high:.3}); goal >= 0.95", median(ratios));
    Ok(())
}

/// Asks what the first view of the page asks, as often as the page does under load.
struct Viewer {
    is_open: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Viewer {
    fn open(admin: SocketAddr) -> Self {
        let (is_open, bytes) = (Arc::new(AtomicBool::new(true)), Arc::<AtomicU64>::default());
        let (open, count) = (is_open.clone(), bytes.clone());
        let events = thread::spawn(move || read_events(admin, &open, &count));
        let open = is_open.clone();
        let views = thread::spawn(move || {
            while open.load(Ordering::Relaxed) {
                for path in VIEW {
                    ask(admin, path)?.read_to_end(&mut Vec::new())?;
                }
                thread::park_timeout(PACE);
            }
            Ok(())
        });
        Self { is_open, bytes, threads: vec![events, views] }
    }

    /// The bytes of events that it has read.
    fn close(self) -> u64 {
        self.is_open.store(false, Ordering::Relaxed);
        for thread in self.threads {
            thread.thread().unpark();
            thread.join().expect("a viewer does not panic").expect("the admin listener answers");
        }
        self.bytes.load(Ordering::Relaxed)
    }
}

fn read_events(admin: SocketAddr, is_open: &AtomicBool, count: &AtomicU64) -> io::Result<()> {
    let mut stream = ask(admin, "events?rate=40")?;
    stream.set_read_timeout(Some(READ_WAIT))?;
    let mut bytes = vec![0; 64 * 1024];
    while is_open.load(Ordering::Relaxed) {
        match stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => count.fetch_add(length as u64, Ordering::Relaxed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

fn ask(admin: SocketAddr, path: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(admin)?;
    write!(stream, "GET /api/v1/{path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")?;
    Ok(stream)
}

/// The first view; its tables are loaded again at most so often while events come.
const VIEW: [&str; 3] =
    ["summary", "operations?state=unknown&limit=200", "operations?state=running&limit=200"];
const PACE: Duration = Duration::from_secs(2);
const READ_WAIT: Duration = Duration::from_millis(100);
/// Threads that make the load: one alone would be the bottleneck.
const GENERATORS: usize = 2;
