//! What others do: a statement per request, by pgbench and by a bare client.

use std::cell::Cell;
use std::io::Write;
use std::process::Command;
use std::rc::Rc;

use onlyonce::clock::{Clock, SystemClock};
use tokio_postgres::{Client, NoTls, Statement};

use crate::load::Cycle;
use crate::operation::BODY_BYTES;

/// A table like the store's own: its columns, checks, indexes and room in its pages.
pub const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS plain (LIKE onlyonce.record INCLUDING ALL) WITH (fillfactor = 30)";

/// What a claim and a completion write, given an id, a token, a key, a digest, a route, a head and a body.
const INSERT: &str = "INSERT INTO plain (id, token, count, attempt, state, key, fingerprint_version, fingerprint_canonical,
    fingerprint_raw, principal, route, first_claimed_at, lease_ms, quiet_ms, ttl_ms, lease_until, begun_bin, expiry_bin)";
const UPDATE: &str = "UPDATE plain SET state = 4, count = count + 1, lease_until = NULL, expires_at = 3, settled_by = 1";

/// Cycles per second of pgbench with the two statements, prepared.
///
/// # Panics
/// If pgbench is not installed or fails.
pub fn pgbench(url: &str, clients: usize, seconds: u64) -> f64 {
    let mut script = tempfile::NamedTempFile::new().expect("a temporary file");
    script.write_all(script_of().as_bytes()).expect("a script can be written");
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

fn script_of() -> String {
    let digest = "decode(repeat('ab', 32), 'hex')";
    let (id, token) = (
        "(lpad(to_hex(:a::bigint), 16, '0') || lpad(to_hex(:b::bigint), 16, '0'))::uuid",
        "'00000000-0000-0000-0000-000000000001'",
    );
    let body = "x".repeat(BODY_BYTES);
    format!(
        "\\set a random(1, 9223372036854775806)\n\\set b random(1, 9223372036854775806)\n\
         {insert} SELECT {id}, {token}, 1, 1, 1, 'key ' || :a::bigint, 1, {digest}, {digest}, {digest}, \
           'POST /v1/charges', 1, 30000, 60000, 86400000, 2, 1, 1 ON CONFLICT (id) DO NOTHING;\n\
         {UPDATE}, head = decode('01', 'hex'), body = '{body}' \
           WHERE id = {id} AND token = {token} AND state = 1;\n",
        insert = INSERT.replace('\n', " "),
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
        let insert = format!(
            "{INSERT} SELECT $1::text::uuid, $2::text::uuid, 1, 1, 1, $3, 1, $4, $4, $4, $5, 1, 30000, 60000,
                 86400000, 2, 1, 1 ON CONFLICT (id) DO NOTHING"
        );
        let update = format!(
            "{UPDATE}, head = $3, body = $4 WHERE id = $1::text::uuid AND token = $2::text::uuid AND state = 1"
        );
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
        let id = format!("{spread:032x}");
        let (key, digest, route) = (format!("key {id}"), vec![7_u8; 32], "POST /v1/charges");
        let made = bare.client.execute(&bare.insert, &[&id, &id, &key, &digest, &route]).await;
        assert_eq!(made.expect("the server answers"), 1);
        id
    }

    async fn settle(&self, id: String) {
        let bare = self.bare.get().expect("a claim came first");
        let (head, body) = (vec![1_u8; 30], vec![b'x'; BODY_BYTES]);
        let made = bare.client.execute(&bare.update, &[&id, &id, &head, &body]).await;
        assert_eq!(made.expect("the server answers"), 1);
    }
}
