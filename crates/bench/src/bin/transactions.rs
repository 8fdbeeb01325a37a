//! A business transaction alone, with an operation of ours inside, and between a claim and a settle: rounds of each in turn.

use std::error::Error;

use clap::Parser;
use onlyonce::store::postgres::PostgresStore;
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
        compare(&url, *clients, &args);
    }
    Ok(())
}

fn compare(url: &str, clients: usize, args: &Args) {
    println!("{clients} clients: alone/s, ours/s, claim and settle around it/s");
    let (mut added, mut around) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let [alone, ours, outside] = [alone(), inside(), outside()]
            .map(|script| run_script(url, &script, clients, args.seconds));
        println!("  {alone:>8.0} {ours:>8.0} {outside:>8.0}");
        added.push(alone / ours);
        around.push(ours / outside);
    }
    for (name, ratios, goal) in [
        ("time with ours ÷ alone", added, "<= 1.35"),
        ("ours ÷ claim and settle around it", around, "> 1"),
    ] {
        let (low, high) = spread(ratios.iter().copied());
        println!("  {name}: {:.2} ({low:.2} to {high:.2}); goal {goal}", median(ratios));
    }
}

const NUMBERS: &str =
    "\\set a random(1, 9223372036854775806)\n\\set b random(1, 9223372036854775806)\n";
const KEY: &str = "'key ' || :a::bigint || ' ' || :b::bigint";
const HASH: &str = "decode(repeat('ab', 32), 'hex')";
const WORK: &str = "INSERT INTO charge (account, amount) VALUES ('acct_1', 7998);\n";

fn alone() -> String {
    format!("BEGIN;\n{WORK}COMMIT;\n")
}

fn inside() -> String {
    format!(
        "{NUMBERS}BEGIN;
SELECT token FROM onlyonce.begin('POST /charges', 'acct_1', {KEY}, {HASH}) \\gset
{WORK}SELECT onlyonce.complete(:token, 201, '{{}}', convert_to('{}', 'UTF8'));
COMMIT;
",
        body()
    )
}

fn outside() -> String {
    let (insert, update) = (insert(KEY, HASH), update(KEY, &format!("'{}'::jsonb", body())));
    format!("{NUMBERS}{insert};\nBEGIN;\n{WORK}COMMIT;\n{update};\n")
}
