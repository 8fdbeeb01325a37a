//! A business transaction alone, with an operation of ours inside, and between a claim and a settle: rounds of each in turn.
//!
//! A driver sends each statement and waits for its answer, or sends several in one message. So both the business transaction and
//! ours are measured in the ways that docs/transactions.md tells of.
//!
//! The business transaction is one INSERT, the smallest that there is, or the one that pgbench itself measures databases by: three
//! UPDATEs, a SELECT and an INSERT. A service's own is somewhere between them.

use std::error::Error;

use clap::Parser;
use onlyonce::store::postgres::PostgresStore;
use onlyonce_bench::limit::fsync_probe;
use onlyonce_bench::pgbench::{TABLE, body, insert, make_tables, run_script, update};
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
    /// The business transaction.
    #[arg(long, value_delimiter = ',', default_values = ["insert", "pgbench"])]
    work: Vec<Work>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let postgres = Postgres::start_to_measure();
    let url = postgres.database();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = runtime.block_on(PostgresStore::open(&url))?;
    runtime.block_on(store.close());
    postgres.sql(&url, TABLE);
    postgres
        .sql(&url, "CREATE TABLE charge (id bigserial PRIMARY KEY, account text, amount integer)");
    make_tables(&url, SCALE);
    for work in &args.work {
        for clients in &args.clients {
            compare(&url, *work, *clients, &args)?;
        }
    }
    Ok(())
}

fn compare(url: &str, work: Work, clients: usize, args: &Args) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let fsync = fsync_probe(folder.path(), PROBES)?.as_secs_f64() * 1e6;
    println!(
        "{work:?}, {clients} clients, an fsync takes {fsync:.0} µs. Transactions a second: {}",
        Way::NAMES
    );
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let run = |way: Way| run_script(url, &way.script(work), clients, args.seconds);
        let round = Way::ALL.map(run);
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

/// What the business transaction does.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Work {
    /// One INSERT.
    Insert,
    /// What pgbench runs where it is given no script ("TPC-B (sort of)"), without its BEGIN and END.
    Pgbench,
}

impl Work {
    /// What is chosen before the transaction begins.
    fn choices(self) -> &'static str {
        match self {
            Self::Insert => "",
            Self::Pgbench => PGBENCH_CHOICES,
        }
    }

    fn statements(self) -> &'static str {
        match self {
            Self::Insert => INSERT,
            Self::Pgbench => PGBENCH_STATEMENTS,
        }
    }
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

    fn script(self, work: Work) -> String {
        let (choices, work) = (work.choices(), work.statements());
        format!("{choices}{}", self.statements(work))
    }

    fn statements(self, work: &str) -> String {
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
            Self::Alone => format!("BEGIN;\n{work}\nCOMMIT;\n"),
            Self::AloneInOne => in_one_message(&["BEGIN;", work, "COMMIT;"]),
            Self::Empty => format!("BEGIN;\nSELECT 1;\n{work}\nSELECT 1;\nCOMMIT;\n"),
            Self::Ours => {
                format!(
                    "{NUMBERS}BEGIN;\n{begin} \\gset\n{work}\n{}\nCOMMIT;\n",
                    complete(":token")
                )
            }
            Self::OursInThree => [
                NUMBERS,
                &in_one_message(&["BEGIN;", &format!("{begin};")]),
                &format!("{work}\n"),
                &in_one_message(&[&complete(&id), "COMMIT;"]),
            ]
            .concat(),
            Self::OursInOne => {
                let all = ["BEGIN;", &format!("{begin};"), work, &complete(&id), "COMMIT;"];
                format!("{NUMBERS}{}", in_one_message(&all))
            }
            Self::Outside => {
                let update = update(KEY, &format!("'{}'::jsonb", body()));
                format!("{NUMBERS}{};\nBEGIN;\n{work}\nCOMMIT;\n{update};\n", insert(KEY, HASH))
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
const INSERT: &str = "INSERT INTO charge (account, amount) VALUES ('acct_1', 7998);";
/// The size of the tables of pgbench: ten branches, a million accounts.
const SCALE: usize = 10;
const PGBENCH_CHOICES: &str = "\\set aid random(1, 1000000)\n\\set bid random(1, 10)\n\
     \\set tid random(1, 100)\n\\set delta random(-5000, 5000)\n";
const PGBENCH_STATEMENTS: &str = "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);";
