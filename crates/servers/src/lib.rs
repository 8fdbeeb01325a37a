//! Real servers for tests and benchmarks: private, on a free loopback port, in a temporary folder.
//!
//! 1. Nothing that already runs on the machine is touched. A server is stopped by its own process id.
//! 2. A server that is dropped is stopped, and its folder removed. One whose test was killed ends with it.
//! 3. Postgres and pgbouncer refuse root: as root they run as an unprivileged user.
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
mod pgbouncer;
mod postgres;
mod process;
mod redis;
mod shim;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::dynamodb::{DynamoDb, Emulator};
pub use self::dynamodb_wire::{DynamoWire, WireCounts, WireFault};
pub use self::kafka::{Kafka, KafkaRecord};
pub use self::nats::Nats;
pub use self::pgbouncer::Pgbouncer;
pub use self::postgres::{Disk, Postgres};
pub use self::redis::Redis;

/// How long a server may take to start or to stop.
pub const START_WAIT_MAX: Duration = Duration::from_secs(60);

/// A loopback port that nobody listens on now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    listener.local_addr().expect("a listener has an address").port()
}

/// Where scripts/test puts the brokers that come from PyPI.
fn brokers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/brokers/python/bin")
}
