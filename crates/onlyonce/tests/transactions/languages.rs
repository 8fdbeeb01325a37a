//! The examples of docs/transactions.md, run as they stand there.

use std::path::Path;
use std::process::{Command, Output};

use crate::lab::Lab;

/// The first block of code in this language.
fn example(language: &str) -> String {
    let page = include_str!("../../../../docs/transactions.md");
    let after = page.split(&format!("## {}\n", title(language))).nth(1).unwrap();
    let block = after.split(&format!("```{language}\n")).nth(1).unwrap();
    block.split("```").next().unwrap().to_owned()
}

fn title(language: &str) -> &'static str {
    match language {
        "sql" => "SQL",
        "python" => "Python",
        _ => "TypeScript",
    }
}

async fn lab() -> Lab {
    let lab = Lab::start().await;
    lab.sql("ALTER TABLE charge ADD UNIQUE (operation)");
    lab
}

/// What the program printed, in lines.
fn printed(output: &Output) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn is_there(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn the_example_in_sql_charges_once() {
    let lab = lab().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), example("sql")).unwrap();
    let psql = || {
        Command::new("psql")
            .args(["-v", "ON_ERROR_STOP=1", &lab.url, "-f"])
            .arg(file.path())
            .output()
    };
    assert!(psql().unwrap().status.success());
    assert_eq!(lab.charges(), "1");
    assert_eq!(lab.sql("SELECT status, body FROM onlyonce.transactional"), "201|\\x63686172676564");
    assert_eq!(lab.sql("SELECT topic, key FROM onlyonce.outbox"), "charges|acct_1");
    assert!(!psql().unwrap().status.success(), "a replay has no token to charge with");
    assert_eq!(lab.charges(), "1");
}

#[tokio::test]
async fn the_example_in_python_charges_once() {
    let python =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/languages/python/bin/python");
    let python = python.to_str().unwrap();
    if !is_there(python, &["-c", "import psycopg"]) {
        println!("SKIPPED: psycopg is not installed; scripts/test installs it");
        return;
    }
    let lab = lab().await;
    let program = format!("{PYTHON_BEFORE}{}{PYTHON_AFTER}", example("python"));
    let output = Command::new(python).args(["-c", &program, &lab.url]).output().unwrap();
    assert_eq!(printed(&output), PRINTED);
    assert_eq!(lab.charges(), "2", "one for each key");
}

#[tokio::test]
async fn the_example_in_typescript_charges_once() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/languages/node");
    let tsx = folder.join("node_modules/.bin/tsx");
    if !is_there(tsx.to_str().unwrap(), &["--version"]) {
        println!("SKIPPED: tsx and pg are not installed; scripts/test installs them");
        return;
    }
    let lab = lab().await;
    let program = format!("{TYPESCRIPT_BEFORE}{}{TYPESCRIPT_AFTER}", example("typescript"));
    let file = tempfile::Builder::new().suffix(".mts").tempfile_in(&folder).unwrap();
    std::fs::write(file.path(), program).unwrap();
    let output = Command::new(tsx).arg(file.path()).arg(&lab.url).output().unwrap();
    assert_eq!(printed(&output), PRINTED);
    assert_eq!(lab.charges(), "2", "one for each key");
}

/// Fresh, replayed, refused for another amount, then the tally of 64 duplicates: how many were charged, and whether every
/// other one was told 201 or 409.
const PRINTED: [&str; 4] = ["201 charged", "201 charged", "422", "1 true"];

const PYTHON_BEFORE: &str = "
import sys, threading, psycopg

";
const PYTHON_AFTER: &str = "
url = sys.argv[1]
with psycopg.connect(url, autocommit=True) as connection:
    for amount in (7998, 7998, 1):
        status, body = charge(connection, 'acct_1', 'k', amount)
        print(status, body.decode()) if status == 201 else print(status)

# Two connections, shared by 64 callers.
answers, room, pool = [], threading.Semaphore(2), [psycopg.connect(url, autocommit=True) for _ in range(2)]
def caller():
    with room:
        connection = pool.pop()
        try:
            answers.append(charge(connection, 'acct_1', 'race', 7998)[0])
        finally:
            pool.append(connection)
callers = [threading.Thread(target=caller) for _ in range(64)]
for each in callers: each.start()
for each in callers: each.join()
with psycopg.connect(url) as connection:
    count = connection.execute(\"SELECT count(*) FROM charge\").fetchone()[0] - 1
print(count, str(len(answers) == 64 and set(answers) <= {201, 409}).lower())
";

const TYPESCRIPT_BEFORE: &str = "
import pg from 'pg';
const { Client } = pg;
type Client = InstanceType<typeof pg.Client>;

";
const TYPESCRIPT_AFTER: &str = "
const connect = async () => {
  const client = new Client({ connectionString: process.argv[2] });
  await client.connect();
  return client;
};
const client = await connect();
for (const amount of [7998, 7998, 1]) {
  const [status, body] = await charge(client, 'acct_1', 'k', amount);
  console.log(status === 201 ? `201 ${body}` : status);
}
// Two connections, shared by 64 callers.
const pool = [client, await connect()];
const answers: number[] = [];
await Promise.all(pool.map(async (connection) => {
  for (let caller = 0; caller < 32; caller += 1) answers.push((await charge(connection, 'acct_1', 'race', 7998))[0]);
}));
const count = (await client.query('SELECT count(*)::int AS count FROM charge')).rows[0].count - 1;
console.log(count, answers.length === 64 && answers.every((status) => status === 201 || status === 409));
for (const connection of pool) await connection.end();
";
