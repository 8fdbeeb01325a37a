//! Real servers for tests and benchmarks: private, on a free loopback port, in a temporary folder.
//!
//! 1. Nothing that already runs on the machine is touched. A server is stopped by its own process id.
//! 2. A server that is dropped is stopped, and its folder removed. One whose test was killed ends with it.
//! 3. Postgres, with Patroni or without, and pgbouncer refuse root: as root they run as an unprivileged user.
//! 4. Everything here waits for a condition, at most [`START_WAIT_MAX`], and panics with a sentence.
//!
//! ```no_run
//! let postgres = servers::Postgres::start();
//! let url = postgres.database();
//! assert!(url.starts_with("postgres://"));
//! ```

mod dynamodb;
mod dynamodb_wire;
mod folder;
mod kafka;
mod nats;
mod patroni;
mod pgbouncer;
mod postgres;
mod process;
mod redis;
mod shim;

use std::hash::{BuildHasher, RandomState};
use std::iter::repeat_with;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::dynamodb::{DynamoDb, Emulator};
pub use self::dynamodb_wire::{DynamoWire, WireCounts, WireFault};
pub use self::kafka::{Kafka, KafkaRecord};
pub use self::nats::Nats;
pub use self::patroni::Patroni;
pub use self::pgbouncer::Pgbouncer;
pub use self::postgres::{Disk, Postgres};
pub use self::redis::Redis;

/// How long a server may take to start or to stop.
pub const START_WAIT_MAX: Duration = Duration::from_secs(60);

/// A loopback port that nobody listens on now. It is below the ports that the system gives to connections: a connection could
/// take one of those before the server listens, or while it is down.
fn free_port() -> u16 {
    let random = || PORTS.start + RandomState::new().hash_one(()) as u16 % PORTS.len() as u16;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    repeat_with(random).take(PORT_TRIES).find(is_free).expect("a loopback port is free")
}

/// A Redis of a cluster listens at the port 10,000 above its own, too, which connections do not take either.
const PORTS: Range<u16> = 12_000..22_000;
const PORT_TRIES: usize = 1_000;

/// Where scripts/test puts the brokers that come from PyPI.
fn brokers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/brokers/python/bin")
}
