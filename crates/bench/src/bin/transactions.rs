//! A business transaction alone, with an operation of ours inside, and between a claim and a settle: rounds of each in turn.
//!
//! A driver sends each statement and waits for its answer, or sends several in one message. So both the business transaction and
//! ours are measured in the ways that docs/transactions.md tells of.

use std::error::Error;

use clap::Parser;
use onlyonce::store::postgres::PostgresStore;
use onlyonce_bench::limit::fsync_probe;
use onlyonce_bench::pgbench::{TABLE, body, insert, run_script, update};
use onlyonce_bench::stats::{median, spread};
use servers::Postgres;

/// What the transactional mode adds to a business transaction, by pgbench.
#[derive(Parser)]
struct Args {
    /// Rounds of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each round.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Clients.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    clients: Vec<usize>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let postgres = Postgres::start();
    let url = postgres.database();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = runtime.block_on(PostgresStore::open(&url))?;
    runtime.block_on(store.close());
    postgres.sql(&url, TABLE);
    postgres
        .sql(&url, "CREATE TABLE charge (id bigserial PRIMARY KEY, account text, amount integer)");
    for clients in &args.clients {
        compare(&url, *clients, &args)?;
    }
    Ok(())
}

fn compare(url: &str, clients: usize, args: &Args) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let fsync = fsync_probe(folder.path(), PROBES)?.as_secs_f64() * 1e6;
    println!(
        "{clients} clients, an fsync takes {fsync:.0} µs. Transactions a second: {}",
        Way::NAMES
    );
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let round = Way::ALL.map(|way| run_script(url, &way.script(), clients, args.seconds));
        println!("  {}", round.map(|rate| format!("{rate:>8.0}")).concat());
        rounds.push(round);
    }
    for (name, way, base, goal) in [
        ("ours ÷ alone", Way::Ours, Way::Alone, "<= 1.35"),
        ("ours in 3 messages ÷ alone", Way::OursInThree, Way::Alone, "<= 1.35"),
        ("ours in 1 message ÷ alone in 1", Way::OursInOne, Way::AloneInOne, "none"),
        ("two empty statements more ÷ alone", Way::Empty, Way::Alone, "none"),
        ("ours ÷ claim and settle around it", Way::Ours, Way::Outside, "< 1"),
    ] {
        // Rates, so the other way round: the time of one divided by the time of the other.
        let times = || rounds.iter().map(|round| round[base as usize] / round[way as usize]);
        let (low, high) = spread(times());
        println!("  time of {name}: {:.2} ({low:.2} to {high:.2}); goal {goal}", median(times()));
    }
    Ok(())
}

/// How the business transaction is made.
#[derive(Clone, Copy)]
enum Way {
    /// BEGIN, the work, COMMIT, each answered before the next is sent.
    Alone,
    /// The same in one message.
    AloneInOne,
    /// The same with two statements more that do nothing: what their round trips cost.
    Empty,
    /// BEGIN, begin, the work, complete, COMMIT, each answered before the next is sent.
    Ours,
    /// BEGIN and begin; the work; complete and COMMIT.
    OursInThree,
    /// All of it in one message: if the operation is not ours, complete fails and nothing is committed.
    OursInOne,
    /// The work between a claim and a settle that are committed on their own, in the table that people make by hand.
    Outside,
}

impl Way {
    const NAMES: &str = "alone, alone in 1 message, with 2 empty statements, ours, ours in 3, ours in 1, claim and settle";
    const ALL: [Self; 7] = [
        Self::Alone,
        Self::AloneInOne,
        Self::Empty,
        Self::Ours,
        Self::OursInThree,
        Self::OursInOne,
        Self::Outside,
    ];

    fn script(self) -> String {
        let begin =
            format!("SELECT token FROM onlyonce.begin('POST /charges', 'acct_1', {KEY}, {HASH})");
        // A pipeline of pgbench tells no results, so there the server makes the token again.
        let complete = |token: &str| {
            format!(
                "SELECT onlyonce.complete({token}, 201, '{{}}', convert_to('{}', 'UTF8'));",
                body()
            )
        };
        let id = format!("onlyonce.operation_id('POST /charges', 'acct_1', {KEY})");
        match self {
            Self::Alone => format!("BEGIN;\n{WORK}\nCOMMIT;\n"),
            Self::AloneInOne => in_one_message(&["BEGIN;", WORK, "COMMIT;"]),
            Self::Empty => format!("BEGIN;\nSELECT 1;\n{WORK}\nSELECT 1;\nCOMMIT;\n"),
            Self::Ours => {
                format!(
                    "{NUMBERS}BEGIN;\n{begin} \\gset\n{WORK}\n{}\nCOMMIT;\n",
                    complete(":token")
                )
            }
            Self::OursInThree => [
                NUMBERS,
                &in_one_message(&["BEGIN;", &format!("{begin};")]),
                &format!("{WORK}\n"),
                &in_one_message(&[&complete(&id), "COMMIT;"]),
            ]
            .concat(),
            Self::OursInOne => {
                let all = ["BEGIN;", &format!("{begin};"), WORK, &complete(&id), "COMMIT;"];
                format!("{NUMBERS}{}", in_one_message(&all))
            }
            Self::Outside => {
                let update = update(KEY, &format!("'{}'::jsonb", body()));
                format!("{NUMBERS}{};\nBEGIN;\n{WORK}\nCOMMIT;\n{update};\n", insert(KEY, HASH))
            }
        }
    }
}

fn in_one_message(statements: &[&str]) -> String {
    format!("\\startpipeline\n{}\n\\endpipeline\n", statements.join("\n"))
}

const PROBES: usize = 200;
const NUMBERS: &str =
    "\\set a random(1, 9223372036854775806)\n\\set b random(1, 9223372036854775806)\n";
const KEY: &str = "'key ' || :a::bigint || ' ' || :b::bigint";
const HASH: &str = "decode(repeat('ab', 32), 'hex')";
const WORK: &str = "INSERT INTO charge (account, amount) VALUES ('acct_1', 7998);";
