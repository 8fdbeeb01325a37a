//! What verified tokens and a seal over the store cost: a gateway with both and one with neither, rounds of them in turn.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce_bench::load;
use onlyonce_bench::proxy::Proxy;
use onlyonce_bench::request::{Keys, Requests};
use onlyonce_bench::stats::{median, spread};
use onlyonce_bench::upstream::Upstream;

/// Requests per second with `[jwt]` and `[seal]` ÷ without them.
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
    /// Where the gateways keep their records; a local disk.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let directory = tempfile::tempdir_in(&args.directory)?;
    let upstream = Upstream::start()?;
    let store = |name: &str| format!("sqlite:{}", directory.path().join(name).display());
    let plain = Proxy::gateway(upstream.address, &store("plain.db"))?;
    let sealed = Proxy::sealed_gateway(upstream.address, &store("sealed.db"))?;
    for (name, is_replay) in [("fresh", false), ("replay", true)] {
        let mut rounds = Vec::new();
        for round in 0..args.rounds {
            let run = |proxy: &Proxy| rate(proxy, is_replay, &args);
            rounds.push(match round % 2 {
                0 => (run(&plain), run(&sealed)),
                _ => {
                    let with = run(&sealed);
                    (run(&plain), with)
                }
            });
        }
        let ratios = || rounds.iter().map(|(plain, sealed)| sealed / plain);
        let (low, high) = spread(ratios());
        let [without, with] = [
            median(rounds.iter().map(|(plain, _)| *plain)),
            median(rounds.iter().map(|(_, sealed)| *sealed)),
        ];
        println!(
            "{name:<7} without {without:>7.0}/s, with {with:>7.0}/s: {:.2}  ({low:.2} to {high:.2})",
            median(ratios())
        );
    }
    Ok(())
}

fn rate(proxy: &Proxy, is_replay: bool, args: &Args) -> f64 {
    let keys = match is_replay {
        true => Keys::Of(HOT_KEYS),
        false => Keys::New(SystemClock.wall().as_ms().unsigned_abs()),
    };
    if is_replay {
        Requests::new(proxy.address, keys).with_signed_token().send_in_turn(HOT_KEYS);
    }
    let length = Duration::from_secs_f64(args.seconds);
    let run = load::run_on_threads(GENERATORS, args.connections, length, |thread| {
        Requests::new(proxy.address, keys.on(thread)).with_signed_token()
    });
    run.rate
}

/// So many keys are replayed.
const HOT_KEYS: u64 = 1_000;
/// Threads that make the load: one alone would be the bottleneck.
const GENERATORS: usize = 2;
