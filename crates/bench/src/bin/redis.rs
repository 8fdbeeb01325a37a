//! The Redis store beside bare scripts on the same server: cycles per second, and bytes per key.

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::store::Store;
use onlyonce::store::layered::{Layered, LayeredOptions};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::redis::RedisStore;
use onlyonce_bench::load::{self, Cycle, Run};
use onlyonce_bench::operation::{BODY_BYTES, Drafts, Operations};
use onlyonce_bench::stats::median;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use servers::Redis;
use tokio::runtime::Runtime;

/// Cycles per second of the Redis store, beside a bare script, and what a key costs.
#[derive(Parser)]
struct Args {
    /// Rounds of each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Cycles in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64])]
    in_flight: Vec<usize>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for fsync in ["everysec", "always"] {
        let server = Redis::start(&["--appendonly", "yes", "--appendfsync", fsync]);
        let store = runtime.block_on(RedisStore::open(&server.url()))?;
        println!("appendfsync {fsync}: {}", store.promise());
        println!(
            "a key: body + {:.0} bytes, its index included\n",
            bytes_per_key(&store, &server)?
        );
        for in_flight in &args.in_flight {
            compare(&store, &server, &runtime, *in_flight, &args)?;
        }
    }
    replays(&runtime, &args)
}

fn bytes_per_key(store: &RedisStore, server: &Redis) -> Result<f64, Box<dyn Error>> {
    let before = bytes_used(server)?;
    let run = load::run(Operations::new(store.clone(), 1), 64, Duration::from_secs(2));
    let bytes = (bytes_used(server)? - before) as f64 / run.claims.len() as f64;
    Ok(bytes - BODY_BYTES as f64)
}

fn compare(
    store: &RedisStore,
    server: &Redis,
    runtime: &Runtime,
    in_flight: usize,
    args: &Args,
) -> Result<(), Box<dyn Error>> {
    let length = Duration::from_secs_f64(args.seconds);
    println!("{in_flight} in flight      ours/s      bare/s   ratio   claim p99 ours / bare");
    let mut rounds: Vec<(Run, Run)> = Vec::new();
    for round in 0..args.rounds {
        let seed = 1_000_000 + SystemClock.wall().as_ms().unsigned_abs() % 10_000_000;
        let ours = load::run(Operations::new(store.clone(), seed), in_flight, length);
        let bare = load::run(runtime.block_on(Bare::connect(server, seed))?, in_flight, length);
        print(&format!("round {}", round + 1), &ours, &bare);
        rounds.push((ours, bare));
    }
    let middle = |of: fn(&(Run, Run)) -> f64| median(rounds.iter().map(of));
    println!(
        "median       {:>10.0}  {:>10.0}   {:>5.3}\n",
        middle(|(ours, _)| ours.rate),
        middle(|(_, bare)| bare.rate),
        middle(|(ours, bare)| ours.rate / bare.rate)
    );
    Ok(())
}

fn print(name: &str, ours: &Run, bare: &Run) {
    println!(
        "{name:<12} {:>10.0}  {:>10.0}   {:>5.3}   {:>8.2} / {:.2} ms",
        ours.rate,
        bare.rate,
        ours.rate / bare.rate,
        ours.claim_p99().as_secs_f64() * 1e3,
        bare.claim_p99().as_secs_f64() * 1e3,
    );
}

/// A replay through the filter, one after the other, over an authority that costs nothing.
fn replays(runtime: &Runtime, args: &Args) -> Result<(), Box<dyn Error>> {
    let server = Redis::start(&[]);
    let layered = Layered::new(MemoryStore::new(), &server.url(), LayeredOptions::new())?;
    let operations = Operations::new(layered.clone(), 7);
    let draft = Drafts::new(7).next();
    runtime.block_on(async {
        let claimed = operations.claim().await;
        operations.settle(claimed).await;
        while layered.counts().kept == 0 {
            layered.load(draft.id).await.expect("the store answers");
        }
        let end = SystemClock.boot() + Duration::from_secs_f64(args.seconds);
        let (mut loads, start) = (0_u32, SystemClock.boot());
        while SystemClock.boot() < end {
            layered.load(draft.id).await.expect("the store answers");
            loads += 1;
        }
        let each = (SystemClock.boot() - start) / loads.max(1);
        println!("a replay from the filter, one at a time: {each:?}; {:?}", layered.counts());
    });
    Ok(())
}

fn bytes_used(server: &Redis) -> Result<u64, Box<dyn Error>> {
    let mut connection = redis::Client::open(server.url())?.get_connection()?;
    let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query(&mut connection)?;
    Ok(info.get("used_memory").unwrap_or_default())
}

/// The least that a claim and a settle can be: one script each, a value of the same size, and no index.
struct Bare {
    connection: MultiplexedConnection,
    drafts: Drafts,
}

impl Bare {
    async fn connect(server: &Redis, seed: u64) -> Result<Self, Box<dyn Error>> {
        let client = redis::Client::open(server.url())?;
        let without_timer = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection =
            client.get_multiplexed_async_connection_with_config(&without_timer).await?;
        Ok(Self { connection, drafts: Drafts::new(seed) })
    }

    async fn run(&self, script: &str, key: &[u8], value: &[u8]) {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(key).arg(value);
        let mut connection = self.connection.clone();
        command.query_async::<redis::Value>(&mut connection).await.expect("Redis answers");
    }
}

impl Cycle for Bare {
    type Claimed = Vec<u8>;

    async fn claim(&self) -> Vec<u8> {
        let key = [b"bare:", &self.drafts.next().id.as_bytes()[..]].concat();
        self.run("return redis.call('SET', KEYS[1], ARGV[1], 'NX')", &key, &[b'x'; RECORD_BYTES])
            .await;
        key
    }

    async fn settle(&self, key: Vec<u8>) {
        let script =
            "if redis.call('GET', KEYS[1]) then return redis.call('SET', KEYS[1], ARGV[1]) end";
        self.run(script, &key, &[b'x'; RECORD_BYTES + BODY_BYTES]).await;
    }
}

/// About what a record has beside its body.
const RECORD_BYTES: usize = 350;
