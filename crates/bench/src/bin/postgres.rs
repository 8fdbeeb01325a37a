//! The Postgres store beside pgbench and a bare client with what people write by hand: rounds of each in turn.

use std::error::Error;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::record::{StateKind, StateSet};
use onlyonce::scope::OperationId;
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::{Maintain, Scan, Store};
use onlyonce_bench::limit::fsync_probe;
use onlyonce_bench::load::{self, Run};
use onlyonce_bench::operation::{BODY_BYTES, Drafts, Operations};
use onlyonce_bench::pgbench::{BareCycle, TABLE, pgbench};
use onlyonce_bench::stats::median;
use servers::Postgres;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio_postgres::NoTls;

/// As in the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Cycles per second of the Postgres store ÷ what a table and two statements written by hand reach.
#[derive(Parser)]
struct Args {
    /// Records that are there when sizes are told.
    #[arg(long, default_value_t = 50_000)]
    records: u64,
    /// Rounds of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Cycles in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    in_flight: Vec<usize>,
    /// Connections that write; the store has one unless told otherwise.
    #[arg(long, default_value_t = 1)]
    writers: usize,
    /// Only the cycles.
    #[arg(long)]
    cycles_only: bool,
    /// Only the rows a second of a sweep, for so many seconds each without and with a transaction that stays open.
    #[arg(long)]
    pinned: Option<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let bench = Bench::start(&args)?;
    if let Some(seconds) = args.pinned {
        return bench.pinned_sweep(seconds);
    }
    for in_flight in &args.in_flight {
        bench.compare(*in_flight, &args)?;
    }
    if !args.cycles_only {
        bench.latency(&args);
        bench.replays(&args);
        bench.sizes(args.records);
        bench.sweep(&args);
    }
    Ok(())
}

struct Bench {
    postgres: Postgres,
    url: String,
    store: PostgresStore,
}

impl Bench {
    fn start(args: &Args) -> Result<Self, Box<dyn Error>> {
        let postgres = Postgres::start_to_measure();
        let url = postgres.database();
        let store = block_on(PostgresStore::open_with(
            &url,
            PostgresOptions::new().with_writers(args.writers),
        ))?;
        postgres.sql(&url, TABLE);
        Ok(Self { postgres, url, store })
    }

    /// Beside it, once, what every node does three times in a lease: it lists what is running.
    fn ours(&self, in_flight: usize, length: Duration) -> Run {
        std::thread::scope(|scope| {
            scope.spawn(|| block_on(self.look_for_lapses()));
            load::run(Operations::new(self.store.clone(), seed()), in_flight, length)
        })
    }

    async fn look_for_lapses(&self) {
        let mut after = None;
        loop {
            let scan = Scan { states: StateSet::of(&[StateKind::Running]), after, limit: 500 };
            after = self.store.scan(scan).await.expect("the server answers").next;
            if after.is_none() {
                return;
            }
        }
    }

    fn compare(&self, in_flight: usize, args: &Args) -> Result<(), Box<dyn Error>> {
        println!("{in_flight} in flight: ours/s, pgbench/s, ratio, claim p50 and p99, fsync");
        let peer = in_flight.min(PGBENCH_CLIENTS_MAX);
        let mut ratios = Vec::new();
        for _ in 0..args.rounds {
            let fsync = fsync_probe(Path::new("/tmp"), PROBES)?;
            let ours = self.ours(in_flight, Duration::from_secs(args.seconds));
            let theirs = pgbench(&self.url, peer, args.seconds);
            let (p50, p99) = (ms(ours.claim_percentile(50)), ms(ours.claim_p99()));
            ratios.push(ours.rate / theirs);
            println!(
                "  {:>8.0} {theirs:>8.0}  {:>6.2}   {p50:.2} / {p99:.2} ms   {:.3} ms",
                ours.rate,
                ours.rate / theirs,
                ms(fsync)
            );
        }
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        println!("  median of ratios {:.2}, lowest {low:.2}\n", median(ratios));
        Ok(())
    }

    /// One cycle after the other, ours and a bare client's.
    fn latency(&self, args: &Args) {
        let length = Duration::from_secs(args.seconds);
        let mut ratios = Vec::new();
        for _ in 0..args.rounds {
            let ours = self.ours(1, length);
            let bare = BareCycle { url: self.url.clone(), bare: Default::default() };
            let bare = load::run(bare, 1, length);
            let (ours, bare) = (ours.claim_percentile(50), bare.claim_percentile(50));
            println!("claim p50 {:.3} ms, bare {:.3} ms", ms(ours), ms(bare));
            ratios.push(ms(ours) / ms(bare));
        }
        println!("1 in flight ÷ bare tokio-postgres: {:.3}; goal <= 1.3\n", median(ratios));
    }

    /// Loads of completed keys, 64 at once and one at a time.
    fn replays(&self, args: &Args) {
        let keys = self.filled(1_000);
        let mut ratios = Vec::new();
        for _ in 0..args.rounds {
            let (many, one) =
                (self.load(&keys, 64, args.seconds), self.load(&keys, 1, args.seconds));
            println!("replays: {many:.0}/s at 64, {one:.0}/s at 1");
            ratios.push(many / one);
        }
        println!("batched ÷ single replays: {:.1}; goal >= 3\n", median(ratios));
    }

    fn load(&self, keys: &Rc<Vec<OperationId>>, in_flight: usize, seconds: u64) -> f64 {
        let end = SystemClock.boot() + Duration::from_secs(seconds);
        let loader = |at: usize| {
            let (store, keys) = (self.store.clone(), keys.clone());
            async move {
                let mut count = 0_usize;
                while SystemClock.boot() < end {
                    let id = keys[(at * 31 + count * 7) % keys.len()];
                    let seen = store.load(id).await.expect("the store answers");
                    assert!(seen.record.is_some(), "a replay");
                    count += 1;
                }
                count
            }
        };
        let runtime = Builder::new_current_thread().build().expect("a runtime can be built");
        let count: usize = LocalSet::new().block_on(&runtime, async {
            let tasks: Vec<_> =
                (0..in_flight).map(|at| tokio::task::spawn_local(loader(at))).collect();
            let mut all = 0;
            for task in tasks {
                all += task.await.expect("a loader does not panic");
            }
            all
        });
        count as f64 / seconds as f64
    }

    /// Completed keys.
    fn filled(&self, count: usize) -> Rc<Vec<OperationId>> {
        let seed = seed();
        let drafts = Drafts::new(seed);
        let keys = (0..count).map(|_| drafts.next().id).collect();
        let operations = Operations::new(self.store.clone(), seed);
        let runtime = Builder::new_current_thread().build().expect("a runtime can be built");
        runtime.block_on(async {
            use onlyonce_bench::load::Cycle;
            for _ in 0..count {
                let claimed = operations.claim().await;
                operations.settle(claimed).await;
            }
        });
        Rc::new(keys)
    }

    fn sizes(&self, records: u64) {
        while self.count() < records {
            self.ours(256, Duration::from_secs(1));
        }
        let rows = self.count();
        let sizes = "SELECT pg_table_size('onlyonce.record'), pg_relation_size('onlyonce.record_id'),
                            pg_relation_size('onlyonce.record_expiry'), pg_relation_size('onlyonce.record_running'),
                            (SELECT n_tup_hot_upd * 100 / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE relname = 'record')";
        let sizes = self.postgres.sql(&self.url, sizes);
        let sizes: Vec<f64> =
            sizes.split('|').map(|size| size.parse().unwrap_or(f64::NAN)).collect();
        let each = |at: usize| sizes[at] / rows as f64;
        println!(
            "{rows} keys: table {:.0} bytes a key (body {BODY_BYTES}), index of ids {:.1}, of expiry {:.1}, of what runs {:.1}; HOT {} %",
            each(0),
            each(1),
            each(2),
            each(3),
            sizes[4]
        );
        println!("index bytes a key: {:.1}; goal <= 70\n", each(1) + each(2) + each(3));
    }

    fn count(&self) -> u64 {
        self.postgres.sql(&self.url, "SELECT count(*) FROM onlyonce.record").parse().unwrap_or(0)
    }

    /// Claim p99 with and without a sweep beside the load.
    fn sweep(&self, args: &Args) {
        let length = Duration::from_secs(args.seconds);
        let mut ratios = Vec::new();
        for _ in 0..args.rounds {
            self.postgres.sql(&self.url, "UPDATE onlyonce.record SET expires_at = to_timestamp(1) WHERE ctid IN (SELECT ctid FROM onlyonce.record WHERE state = 4 LIMIT 20000)");
            let (without, (with, swept)) = (self.ours(16, length), self.swept(length));
            println!(
                "claim p99 {:.2} ms, {:.2} ms during a sweep of {swept}",
                ms(without.claim_p99()),
                ms(with.claim_p99())
            );
            ratios.push(ms(with.claim_p99()) / ms(without.claim_p99()));
        }
        println!("claim p99 during a sweep ÷ without: {:.2}; goal <= 1.5\n", median(ratios));
    }

    /// A transaction that stays open keeps deleted rows in the index: a sweep that read them again would get slower.
    fn pinned_sweep(&self, seconds: u64) -> Result<(), Box<dyn Error>> {
        self.postgres.sql(&self.url, &expired_rows(2 * seconds * EXPIRED_PER_SECOND));
        let free = self.sweep_rates(seconds);
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&self.url, NoTls))?;
        let connection = runtime.spawn(connection);
        runtime.block_on(client.batch_execute(PIN))?;
        let pinned = self.sweep_rates(seconds);
        // It was open until now.
        drop((client, connection));
        println!("rows a second of a sweep: {free:.0?}\nwith an open transaction: {pinned:.0?}");
        println!("pinned ÷ free: {:.2}; goal >= 0.5", pinned[pinned.len() - 1] / median(free));
        Ok(())
    }

    /// Rows a second in each part of so many seconds.
    fn sweep_rates(&self, seconds: u64) -> Vec<f64> {
        let rate = |_| {
            let (start, mut deleted) = (SystemClock.boot(), 0);
            while SystemClock.boot() < start + Duration::from_secs(seconds) / SWEEP_PARTS {
                let swept = block_on(self.store.sweep(SystemClock.wall(), 500));
                deleted += swept.expect("the store answers").deleted;
            }
            deleted as f64 / (SystemClock.boot() - start).as_secs_f64()
        };
        (0..SWEEP_PARTS).map(rate).collect()
    }

    fn swept(&self, length: Duration) -> (Run, usize) {
        let store = self.store.clone();
        let end = SystemClock.boot() + length;
        let sweeper = std::thread::spawn(move || {
            let mut deleted = 0;
            while SystemClock.boot() < end {
                deleted += block_on(store.sweep(SystemClock.wall(), 5_000))
                    .expect("the store answers")
                    .deleted;
            }
            deleted
        });
        let run = self.ours(16, length);
        (run, sweeper.join().expect("the sweeper does not panic"))
    }
}

/// Completed records that expired one after the other, long ago.
fn expired_rows(count: u64) -> String {
    format!(
        "INSERT INTO onlyonce.record (id, state, attempt, token, count, key, route, principal, fingerprint_version,
           fingerprint_canonical, fingerprint_raw, first_claimed_at, lease_ms, quiet_ms, ttl_ms, expires_at, settled_by,
           head, body)
         SELECT gen_random_uuid(), 4, 1, gen_random_uuid(), 2, 'key ' || n, 'POST /v1/charges', d, 1, d, d,
           to_timestamp(n), 1, 0, 1, to_timestamp(n), 1, decode('01c900', 'hex'), decode(repeat('78', {BODY_BYTES}), 'hex')
           FROM generate_series(1, {count}) AS n, (SELECT decode(repeat('ab', 32), 'hex') AS d) AS digest"
    )
}

fn seed() -> u64 {
    1_000_000 + SystemClock.wall().as_ms().unsigned_abs() % 10_000_000
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().build().expect("a runtime can be built");
    runtime.block_on(future)
}

/// More sessions than this only slow pgbench down.
const PGBENCH_CLIENTS_MAX: usize = 64;
const PROBES: usize = 50;
/// More than a sweep deletes.
const EXPIRED_PER_SECOND: u64 = 8_000;
const SWEEP_PARTS: u32 = 6;
const PIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM onlyonce.meta";
