//! What others do: a statement per request, by pgbench and by a bare client.

use std::cell::Cell;
use std::io::Write;
use std::process::Command;
use std::rc::Rc;

use onlyonce::clock::{Clock, SystemClock};
use tokio_postgres::{Client, NoTls, Statement};

use crate::load::Cycle;
use crate::operation::BODY_BYTES;

/// The table that people make by hand, as the articles on idempotency keys have it.
pub const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS idempotency_keys (
      key             text PRIMARY KEY,
      request_hash    bytea NOT NULL,
      status          text NOT NULL CHECK (status IN ('in_progress', 'completed', 'failed')),
      response_body   jsonb,
      response_status int,
      created_at      timestamptz NOT NULL DEFAULT now(),
      completed_at    timestamptz);
    CREATE INDEX IF NOT EXISTS idempotency_keys_created_at ON idempotency_keys (created_at)";

/// The two statements that a request costs there, given a key, a hash and a body.
pub fn insert(key: &str, hash: &str) -> String {
    format!(
        "INSERT INTO idempotency_keys (key, request_hash, status) VALUES ({key}, {hash}, 'in_progress') \
         ON CONFLICT (key) DO NOTHING"
    )
}

/// The second of them.
pub fn update(key: &str, body: &str) -> String {
    format!(
        "UPDATE idempotency_keys SET status = 'completed', response_body = {body}, response_status = 201, \
         completed_at = now() WHERE key = {key} AND status = 'in_progress'"
    )
}

/// A body as long as those that our own store keeps.
pub fn body() -> String {
    format!("{{\"id\":\"{}\"}}", "x".repeat(BODY_BYTES - 9))
}

/// Cycles per second of pgbench with the two statements, prepared.
///
/// # Panics
/// If pgbench is not installed or fails.
pub fn pgbench(url: &str, clients: usize, seconds: u64) -> f64 {
    run_script(url, &script_of(), clients, seconds)
}

/// Runs of a script per second, its statements prepared.
///
/// # Panics
/// If pgbench is not installed or fails.
pub fn run_script(url: &str, text: &str, clients: usize, seconds: u64) -> f64 {
    let mut script = tempfile::NamedTempFile::new().expect("a temporary file");
    script.write_all(text.as_bytes()).expect("a script can be written");
    let threads = clients.min(2).to_string();
    let output = Command::new("pgbench")
        .args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", &threads])
        .args(["-T", &seconds.to_string(), "-f"])
        .arg(script.path())
        .arg(url)
        .output()
        .expect("pgbench is installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate =
        said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Makes the tables of pgbench's own transaction.
///
/// # Panics
/// If pgbench is not installed or fails.
pub fn make_tables(url: &str, scale: usize) {
    let made = Command::new("pgbench").args(["-i", "-q", "-s", &scale.to_string(), url]).output();
    let made = made.expect("pgbench is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn script_of() -> String {
    let key = "'key ' || :a::bigint || ' ' || :b::bigint";
    let (insert, update) = (
        insert(key, "decode(repeat('ab', 32), 'hex')"),
        update(key, &format!("'{}'::jsonb", body())),
    );
    format!(
        "\\set a random(1, 9223372036854775806)\n\\set b random(1, 9223372036854775806)\n{insert};\n{update};\n"
    )
}

/// A bare client: the same two statements, prepared, one connection.
#[derive(Debug)]
pub struct Bare {
    client: Client,
    insert: Statement,
    update: Statement,
    next: Cell<u64>,
}

impl Bare {
    /// A connection of its own, driven by the runtime that calls this.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn connect(url: &str) -> Self {
        let (client, connection) =
            tokio_postgres::connect(url, NoTls).await.expect("the server answers");
        tokio::task::spawn(connection);
        let (insert, update) = (insert("$1", "$2"), update("$1", "$2::text::jsonb"));
        let insert = client.prepare(&insert).await.expect("the table is there");
        let update = client.prepare(&update).await.expect("the table is there");
        let next = Cell::new(SystemClock.wall().as_ms().unsigned_abs() << 20);
        Self { client, insert, update, next }
    }
}

/// Connects on first use, so that it lives on the runtime of the load.
#[derive(Debug)]
pub struct BareCycle {
    /// The server.
    pub url: String,
    /// The connection.
    pub bare: tokio::sync::OnceCell<Rc<Bare>>,
}

impl Cycle for BareCycle {
    type Claimed = String;

    async fn claim(&self) -> String {
        let bare =
            self.bare.get_or_init(|| async { Rc::new(Bare::connect(&self.url).await) }).await;
        let number = bare.next.get();
        bare.next.set(number + 1);
        let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let (key, hash) = (format!("key {spread:032x}"), vec![7_u8; 32]);
        let made = bare.client.execute(&bare.insert, &[&key, &hash]).await;
        assert_eq!(made.expect("the server answers"), 1);
        key
    }

    async fn settle(&self, key: String) {
        let bare = self.bare.get().expect("a claim came first");
        let made = bare.client.execute(&bare.update, &[&key, &body()]).await;
        assert_eq!(made.expect("the server answers"), 1);
    }
}
