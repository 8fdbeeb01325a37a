//! Clients, gateways, a service and a store on a simulated network, by seeds that repeat exactly.
//!
//! The gateways are the library's own: its layer, its engine and its background work. The network is turmoil's, the store
//! a model that loses, delays, doubles and refuses, the clocks are the run's.
//!
//! - `ONLYONCE_SEEDS=20000` runs so many seeds instead of the tier's count.
//! - `ONLYONCE_SEED=7` begins with this seed; with `ONLYONCE_SEEDS=1` it is the only one, and its trace is printed.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod check;
mod clients;
mod flaws;
mod gateway;
mod link;
mod met;
mod plan;
mod run;
mod service;
mod store;
mod world;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use flaws::Flaw;
use met::Met;
use proof::tier::tiered;
use run::{Ran, run};

// threats A12, B1 to B8, C1
#[test]
fn every_seed_keeps_the_promises() {
    let regressions = regressions();
    let count = env("ONLYONCE_SEEDS").unwrap_or_else(|| tiered(5_000) as u64);
    let first = env("ONLYONCE_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    println!("{count} seeds from {first}, and {} that failed once", regressions.len());
    let is_verbose = count == 1;
    let seeds: Vec<_> = regressions.into_iter().chain(first..first + count).collect();
    let (met, failed) = all(&seeds, Flaw::None, is_verbose, usize::MAX);
    println!("met: {met}");
    for (seed, why) in &failed {
        println!("seed {seed}: {why}");
        println!(
            "repeat: ONLYONCE_SEEDS=1 ONLYONCE_SEED={seed} cargo test -p proof --test simulation -- --nocapture every_seed"
        );
        remember(*seed);
    }
    assert!(failed.is_empty(), "{} of {} seeds failed", failed.len(), seeds.len());
    if count >= VACUOUS_BELOW {
        assert_eq!(met.missing(), Vec::<&str>::new(), "these seeds have not met all of it");
    }
}

#[test]
fn a_seed_gives_the_same_trace_each_time() {
    let first = env("ONLYONCE_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    let seeds = first..first + tiered(200) as u64;
    let mut hashes = std::collections::BTreeSet::new();
    for seed in seeds.clone() {
        let (one, two) = (run(seed, Flaw::None, false), run(seed, Flaw::None, false));
        assert_eq!(one.hash, two.hash, "seed {seed}");
        assert_eq!(one.met, two.met, "seed {seed}");
        hashes.insert(one.hash);
    }
    assert_eq!(hashes.len() as u64, seeds.end - seeds.start, "other seeds, other traces");
}

#[test]
fn a_store_that_ignores_guards_is_noticed() {
    is_noticed(Flaw::IgnoresGuards);
}

#[test]
fn a_store_that_answers_done_without_doing_it_is_noticed() {
    is_noticed(Flaw::AnswersUndone);
}

#[test]
fn a_sweep_that_ignores_states_is_noticed() {
    is_noticed(Flaw::SweepsAnyState);
}

#[test]
fn a_store_that_gives_a_claim_twice_is_noticed() {
    is_noticed(Flaw::GivesClaimsTwice);
}

/// Among the first seeds, at least one breaks a promise on a store with this flaw.
fn is_noticed(flaw: Flaw) {
    let seeds: Vec<_> = (1..=CONTROL_SEEDS).collect();
    let (_, failed) = all(&seeds, flaw, false, 1);
    let (seed, why) = failed.first().unwrap_or_else(|| panic!("{flaw:?} went unnoticed"));
    println!("{flaw:?}: seed {seed}: {why}");
}

/// Runs the seeds on all cores, until `failures_max` of them have failed.
fn all(
    seeds: &[u64],
    flaw: Flaw,
    is_verbose: bool,
    failures_max: usize,
) -> (Met, Vec<(u64, String)>) {
    let (next, sum) = (AtomicU64::new(0), Mutex::new((Met::default(), Vec::new())));
    let work = || {
        while sum.lock().unwrap().1.len() < failures_max {
            let place = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
            let Some(seed) = seeds.get(place) else { return };
            let ran = catch_unwind(AssertUnwindSafe(|| run(*seed, flaw, is_verbose)));
            let (met, broken, lines) = match ran {
                Ok(Ran { met, broken, lines, .. }) => (met, broken, lines),
                Err(_) => (Met::default(), Some("the run panicked".to_owned()), String::new()),
            };
            if is_verbose {
                println!("{lines}");
            }
            let mut sum = sum.lock().unwrap();
            sum.0.add(&met);
            sum.1.extend(broken.map(|why| (*seed, why)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    sum.into_inner().unwrap()
}

fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn regressions_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("regressions/simulation.txt")
}

/// The seeds that failed once.
fn regressions() -> Vec<u64> {
    let text = std::fs::read_to_string(regressions_file()).unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(|line| line.parse().unwrap()).collect()
}

fn remember(seed: u64) {
    if regressions().contains(&seed) {
        return;
    }
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).append(true).open(regressions_file());
    if let Ok(mut file) = file {
        let _ = writeln!(file, "{seed}");
    }
}

/// So many seeds must have met everything.
const VACUOUS_BELOW: u64 = 300;
/// In so many seeds a flaw of the store must show.
const CONTROL_SEEDS: u64 = 200;
