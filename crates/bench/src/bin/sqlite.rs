//! The SQLite store against the physical limit: rounds of both in turn, with an fsync probe beside them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::store::sqlite::SqliteStore;
use onlyonce_bench::limit::{Limit, fsync_probe};
use onlyonce_bench::load::{self, Run};
use onlyonce_bench::operation::{BODY_BYTES, Operations};
use onlyonce_bench::stats::median;
use tokio::runtime::Builder;

/// Cycles per second of the SQLite store, and its share of the physical limit.
#[derive(Parser)]
struct Args {
    /// Records that are there before the first round.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Rounds of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Cycles in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64])]
    in_flight: Vec<usize>,
    /// Where to write; a local disk.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let directory = tempfile::tempdir_in(&args.directory)?;
    let path = directory.path().join("bench.db");
    preload(&path, args.records)?;
    let store = open(&path, args.records)?;
    for in_flight in &args.in_flight {
        compare(&store, directory.path(), *in_flight, &args)?;
    }
    Ok(())
}

fn preload(path: &Path, records: u64) -> Result<(), Box<dyn Error>> {
    let store = block_on(SqliteStore::open(path))?;
    let mut made = 0;
    let before = SystemClock.boot();
    while made < records {
        let run = load::run(
            Operations::new(store.clone(), made + 1),
            PRELOAD_IN_FLIGHT,
            Duration::from_secs(1),
        );
        made += run.claims.len() as u64;
    }
    let took = (SystemClock.boot() - before).as_secs_f64();
    let shown = format!("{store:?}");
    block_on(store.close());
    drop(store);
    let bytes = std::fs::metadata(path)?.len();
    println!("{made} records preloaded at {:.0}/s; {shown}", made as f64 / took);
    println!(
        "on disk: body + {:.1} bytes a record",
        bytes as f64 / made as f64 - BODY_BYTES as f64
    );
    Ok(())
}

fn open(path: &Path, records: u64) -> Result<SqliteStore, Box<dyn Error>> {
    let before = SystemClock.boot();
    let store = block_on(SqliteStore::open(path))?;
    let took = (SystemClock.boot() - before).as_secs_f64();
    println!("opened in {took:.2} s, {:.2} s per million\n", took / records.max(1) as f64 * 1e6);
    Ok(store)
}

fn compare(
    store: &SqliteStore,
    directory: &Path,
    in_flight: usize,
    args: &Args,
) -> Result<(), Box<dyn Error>> {
    let length = Duration::from_secs_f64(args.seconds);
    println!(
        "{in_flight} in flight      ours/s     limit/s   ratio   claim p99 ours / limit   fsync"
    );
    let mut rounds: Vec<(Run, Run)> = Vec::new();
    let mut probes = Vec::new();
    for round in 0..args.rounds {
        let fsync = ms(fsync_probe(directory, PROBES)?);
        let seed = 1_000_000 + SystemClock.wall().as_ms().unsigned_abs() % 10_000_000;
        let ours = load::run(Operations::new(store.clone(), seed), in_flight, length);
        let limit = load::run(Limit::start(directory, seed)?, in_flight, length);
        let name = format!("round {}", round + 1);
        print(&name, &[ours.rate, limit.rate, ms(ours.claim_p99()), ms(limit.claim_p99()), fsync]);
        rounds.push((ours, limit));
        probes.push(fsync);
    }
    let middle = |of: fn(&(Run, Run)) -> f64| median(rounds.iter().map(of));
    print(
        "median",
        &[
            middle(|(ours, _)| ours.rate),
            middle(|(_, limit)| limit.rate),
            middle(|(ours, _)| ms(ours.claim_p99())),
            middle(|(_, limit)| ms(limit.claim_p99())),
            median(probes.iter().copied()),
        ],
    );
    println!("median of ratios: {:.3}\n", middle(|(ours, limit)| ours.rate / limit.rate));
    Ok(())
}

fn print(name: &str, [ours, limit, ours_p99, limit_p99, fsync]: &[f64; 5]) {
    let ratio = ours / limit;
    println!(
        "{name:<12} {ours:>10.0}  {limit:>10.0}   {ratio:>5.3}   {ours_p99:>8.2} / {limit_p99:.2} ms   {fsync:.3} ms"
    );
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().build().expect("a runtime can be built");
    runtime.block_on(future)
}

const PRELOAD_IN_FLIGHT: usize = 256;
const PROBES: usize = 200;
