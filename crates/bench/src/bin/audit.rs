//! What an audit trail costs: the same cycles on a store without one and on a store with one, rounds of both in turn.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use onlyonce::EventKind;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::record::Token;
use onlyonce::scope::{KeyDigest, OperationId, Principal};
use onlyonce::store::audit::{About, AuditOptions, Note};
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::sqlite::{SqliteOptions, SqliteStore};
use onlyonce::store::{Beat, Draft, Fault, Guard, Inspect, Lease, Next, Seen, Store, Swap};
use onlyonce_bench::load;
use onlyonce_bench::operation::Operations;
use onlyonce_bench::stats::{median, spread};
use servers::Postgres;
use tokio::runtime::Builder;

/// As in the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Cycles per second with an audit trail ÷ without one.
#[derive(Parser)]
struct Args {
    /// Rounds of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Cycles in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64])]
    in_flight: Vec<usize>,
    /// Where SQLite writes; a local disk.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let directory = tempfile::tempdir_in(&args.directory)?;
    let open = |name: &str, options| SqliteStore::open_with(directory.path().join(name), options);
    let plain = block_on(open("plain.db", SqliteOptions::new()))?;
    let audited = SqliteOptions::new().with_audit(AuditOptions::default());
    let audited = block_on(open("audited.db", audited))?;
    compare("SQLite", &plain, &audited, &args);

    let server = Postgres::start_to_measure();
    let plain = block_on(PostgresStore::open(&server.database()))?;
    let audited = PostgresOptions::new().with_audit(AuditOptions::default());
    let audited = block_on(PostgresStore::open_with(&server.database(), audited))?;
    compare("Postgres", &plain, &audited, &args);
    Ok(())
}

fn compare<S: Inspect + Clone>(name: &str, plain: &S, audited: &S, args: &Args) {
    let length = Duration::from_secs_f64(args.seconds);
    for in_flight in &args.in_flight {
        println!("{name}, {in_flight} in flight: without/s, with/s, ratio");
        let mut ratios = Vec::new();
        for _ in 0..args.rounds {
            let seed = SystemClock.wall().as_ms().unsigned_abs() % 10_000_000;
            let without = load::run(Operations::new(plain.clone(), seed), *in_flight, length).rate;
            let noted = Operations::new(Noted(audited.clone()), seed);
            let with = load::run(noted, *in_flight, length).rate;
            println!("  {without:>8.0} {with:>8.0}  {:>5.2}", with / without);
            ratios.push(with / without);
        }
        let (low, high) = spread(ratios.iter().copied());
        println!("  median of ratios {:.2} ({low:.2} to {high:.2})\n", median(ratios));
    }
}

/// A store whose writes are noted, as the engine notes them.
#[derive(Debug)]
struct Noted<S>(S);

impl<S: Inspect> Store for Noted<S> {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        let note = note(EventKind::Claimed, draft.id, None);
        self.0.audit().expect("it keeps a trail").claim(draft, note).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.0.load(id).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        let note = note(EventKind::Executed, id, Some(201));
        self.0.audit().expect("it keeps a trail").swap(id, guard, to, note).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        self.0.renew(held, lease).await
    }
}

fn note(kind: EventKind, id: OperationId, status: Option<u16>) -> Arc<Note> {
    let about = About {
        key: Some(KeyDigest::from_bytes([7; 32])),
        route: "POST /v1/charges".into(),
        principal: Some(Principal::from_bytes([8; 32])),
        attempt: Some(1),
        by: None,
        ids: Vec::new(),
    };
    Arc::new(Note { kind, id: Some(id), status, count: None, about: Arc::new(about) })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be built").block_on(future)
}
