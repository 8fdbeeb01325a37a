//! The gateway against nginx as a plain proxy: the same upstream and load, rounds of both in turn.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce_bench::limit::fsync_probe;
use onlyonce_bench::load;
use onlyonce_bench::proxy::Proxy;
use onlyonce_bench::request::{Keys, Requests};
use onlyonce_bench::stats::{median, spread};
use onlyonce_bench::upstream::Upstream;
use servers::Postgres;

/// Requests per second and latency of the gateway, and their ratios to nginx.
#[derive(Parser)]
struct Args {
    /// Rounds of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Traffic: unguarded, fresh or replay.
    #[arg(long, value_delimiter = ',', default_values = ["unguarded", "fresh", "replay"])]
    traffic: Vec<Traffic>,
    /// Where the gateway keeps its records; a local disk.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// With a private Postgres on the same machine, instead of a file.
    #[arg(long)]
    postgres: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Traffic {
    /// No key: passed on.
    Unguarded,
    /// A new key each: a durable claim, the call, a durable settle.
    Fresh,
    /// Keys whose answers are known.
    Replay,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let directory = tempfile::tempdir_in(&args.directory)?;
    let upstream = Upstream::start()?;
    let nginx = Proxy::nginx(upstream.address, directory.path())?;
    let postgres = args.postgres.then(Postgres::start_to_measure);
    let store = match &postgres {
        Some(postgres) => postgres.database(),
        None => format!("sqlite:{}", directory.path().join("gateway.db").display()),
    };
    let gateway = Proxy::gateway(upstream.address, &store)?;
    let bench = Bench { args: &args, upstream, nginx, gateway };
    println!(
        "{} connections, fsync {:.3} ms",
        args.connections,
        ms(fsync_probe(directory.path(), PROBES)?)
    );
    for traffic in &args.traffic {
        bench.compare(*traffic);
    }
    Ok(())
}

struct Bench<'a> {
    args: &'a Args,
    upstream: Upstream,
    nginx: Proxy,
    gateway: Proxy,
}

/// What one run measured.
#[derive(Clone, Copy)]
struct Figures {
    count: u64,
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Of the proxy alone, per request.
    cpu_us: f64,
}

impl Bench<'_> {
    fn compare(&self, traffic: Traffic) {
        println!("\n{traffic:?}          req/s   p50 ms   p99 ms   CPU us");
        let mut rounds = Vec::new();
        for round in 0..self.args.rounds {
            let direct = self.run(traffic, self.upstream.address, None);
            let (nginx, gateway) = match round % 2 {
                0 => (self.nginx_run(traffic), self.gateway_run(traffic)),
                _ => {
                    let gateway = self.gateway_run(traffic);
                    (self.nginx_run(traffic), gateway)
                }
            };
            rounds.push([direct, nginx, gateway]);
        }
        for (at, name) in ["direct", "nginx", "gateway"].into_iter().enumerate() {
            let middle =
                |of: fn(&Figures) -> f64| median(rounds.iter().map(|round| of(&round[at])));
            println!(
                "{name:<12} {:>10.0} {:>8.2} {:>8.2} {:>8.1}",
                middle(|f| f.rate),
                middle(|f| f.p50_ms),
                middle(|f| f.p99_ms),
                middle(|f| f.cpu_us),
            );
        }
        for (name, of) in RATIOS {
            let ratios = || rounds.iter().map(|[_, nginx, gateway]| of(gateway) / of(nginx));
            let (low, high) = spread(ratios());
            println!("gateway / nginx, {name:<6} {:.2}  ({low:.2} to {high:.2})", median(ratios()));
        }
    }

    fn nginx_run(&self, traffic: Traffic) -> Figures {
        self.run(traffic, self.nginx.address, Some(&self.nginx))
    }

    /// What the gateway must not do is not done faster: what reached the upstream is counted.
    fn gateway_run(&self, traffic: Traffic) -> Figures {
        if traffic == Traffic::Replay {
            Requests::new(self.gateway.address, Keys::Of(HOT_KEYS)).send_in_turn(HOT_KEYS);
        }
        let executed_before = self.upstream.executed();
        let figures = self.run(traffic, self.gateway.address, Some(&self.gateway));
        let executed = self.upstream.executed() - executed_before;
        let expected = match traffic {
            Traffic::Replay => 0,
            _ => figures.count,
        };
        assert_eq!(executed, expected, "executions that reached the upstream");
        figures
    }

    fn run(&self, traffic: Traffic, address: SocketAddr, proxy: Option<&Proxy>) -> Figures {
        let keys = match traffic {
            Traffic::Unguarded => Keys::None,
            Traffic::Fresh => Keys::New(SystemClock.wall().as_ms().unsigned_abs()),
            Traffic::Replay => Keys::Of(HOT_KEYS),
        };
        let cpu = || proxy.map_or(Duration::ZERO, Proxy::cpu);
        let cpu_before = cpu();
        let length = Duration::from_secs_f64(self.args.seconds);
        let run = load::run_on_threads(GENERATORS, self.args.connections, length, |thread| {
            Requests::new(address, keys.on(thread))
        });
        Figures {
            count: run.claims.len() as u64,
            rate: run.rate,
            p50_ms: ms(run.claim_percentile(50)),
            p99_ms: ms(run.claim_p99()),
            cpu_us: (cpu() - cpu_before).as_secs_f64() * 1e6 / run.claims.len() as f64,
        }
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

type Of = fn(&Figures) -> f64;
const RATIOS: [(&str, Of); 4] =
    [("req/s", |f| f.rate), ("p50", |f| f.p50_ms), ("p99", |f| f.p99_ms), ("CPU", |f| f.cpu_us)];
/// So many keys are replayed.
const HOT_KEYS: u64 = 1_000;
/// Threads that make the load: one alone would be the bottleneck.
const GENERATORS: usize = 2;
const PROBES: usize = 200;
