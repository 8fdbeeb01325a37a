//! `onlyonce plan`: its arithmetic, and the bytes of a record that it goes by, measured with the real stores.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::process::Command;

use axum::Router;
use axum::routing::post;
use futures_util::StreamExt;
use http::request::Parts;
use onlyonce::scope::Principal;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::redis::RedisStore;
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::{Once, Policy};
use serde_json::Value;
use servers::{Postgres, Redis};
use tower_service::Service;

/// The figures that the command prints.
fn plan(arguments: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.arg("plan").args(arguments.split(' ')).args(["--format", "json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A figure for one record with an answer of so many bytes.
fn planned(store: &str, response: usize, figure: &str) -> f64 {
    let plan = plan(&format!("--rate 1/s --ttl 1h --response {response}B --store {store}"));
    plan["stores"][store][figure]["value"].as_f64().unwrap()
}

#[track_caller]
fn is_near(measured: f64, planned: f64) {
    let ratio = planned / measured;
    assert!((0.8..=1.2).contains(&ratio), "planned {planned:.0}, measured {measured:.1}");
}

/// Sends so many operations, each with an answer of `response` bytes, through a layer of this engine.
async fn fill(once: &Once, seed: usize, count: usize, response: usize) {
    let caller = |_: &Parts| Principal::of("test", b"caller");
    let handler =
        move || async move { ([("content-type", "application/json")], vec![b'x'; response]) };
    let policy = Policy::default().with_route("POST /v1/charges");
    let app = Router::new().route("/v1/charges", post(handler)).layer(once.layer(caller, policy));
    let send = |number: usize| {
        let mut app = app.clone();
        let key = format!("{seed:08x}-0000-4000-8000-{number:012x}");
        let request = http::Request::post("/v1/charges").header("host", "api.example");
        let request = request.header("idempotency-key", key).body(axum::body::Body::from("{}"));
        async move {
            let answer = app.call(request.unwrap()).await.unwrap();
            assert_eq!(answer.status(), 200);
        }
    };
    futures_util::stream::iter(0..count).for_each_concurrent(AT_ONCE, send).await;
}

const COUNT: usize = 8_000;
const AT_ONCE: usize = 256;
const RESPONSES: [usize; 2] = [300, 3_000];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_in_sqlite_takes_what_is_planned() {
    for response in RESPONSES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("onlyonce.db");
        let store = SqliteStore::open(&path).await.unwrap();
        let once = Once::new(store.clone());
        fill(&once, 1, COUNT, response).await;
        let shown = format!("{store:?}");
        let (_, index) = shown.split_once("index_bytes: ").unwrap();
        let index: f64 = index.split([',', ' ']).next().unwrap().parse().unwrap();
        store.close().await;
        let bytes = std::fs::metadata(&path).unwrap().len() as f64 / COUNT as f64;
        println!("sqlite {response}: {bytes} index {}", index / COUNT as f64);
        is_near(bytes, planned("sqlite", response, "bytes_per_record"));
        let rows = plan("--rate 1/s --ttl 1h")["load"]["rows"]["value"].as_f64().unwrap();
        let cache = f64::from(64 << 20);
        let memory = (planned("sqlite", response, "memory_bytes") - cache) / rows;
        is_near(index / COUNT as f64, memory);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_in_postgres_takes_what_is_planned() {
    let postgres = Postgres::start();
    for response in RESPONSES {
        let url = postgres.database();
        let store = PostgresStore::open(&url).await.unwrap();
        let once = Once::new(store.clone());
        let size = || -> f64 {
            let sql = "SELECT pg_total_relation_size('onlyonce.record')";
            postgres.sql(&url, sql).parse().unwrap()
        };
        // As autovacuum does in the long run: the room of dead rows is used again.
        for round in 0..ROUNDS {
            fill(&once, round, COUNT / ROUNDS, response).await;
            postgres.sql(&url, "VACUUM onlyonce.record");
        }
        let bytes = size() / COUNT as f64;
        println!("postgres {response}: {bytes}");
        is_near(bytes, planned("postgres", response, "bytes_per_record"));
        store.close().await;
    }
}

const ROUNDS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_in_redis_takes_what_is_planned() {
    for response in RESPONSES {
        let redis = Redis::start(&[]);
        let store = RedisStore::open(&redis.url()).await.unwrap();
        let once = Once::new(store.clone());
        // Buffers and tables that do not grow with the records.
        fill(&once, 0, 100, response).await;
        let before = memory_of(&redis);
        fill(&once, 1, COUNT, response).await;
        let bytes = (memory_of(&redis) - before) / COUNT as f64;
        println!("redis {response}: {bytes}");
        is_near(bytes, planned("redis", response, "bytes_per_record"));
        store.close().await;
    }
}

/// What its data takes, without the buffers of connections.
fn memory_of(redis: &Redis) -> f64 {
    use std::io::{Read, Write};
    let mut connection = std::net::TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    connection.write_all(b"MEMORY STATS\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (_, value) = answer.split_once("dataset.bytes\r\n:").unwrap();
    let overhead = answer.split_once("overhead.hashtable.main\r\n:").unwrap().1;
    let number = |text: &str| text.split("\r\n").next().unwrap().parse::<f64>().unwrap();
    number(value) + number(overhead)
}

#[test]
fn the_arithmetic_is_shown_and_right() {
    let plan = plan("--rate 1000/s --ttl 24h --duplicates 5% --response 300B --sweep 15m");
    assert_eq!(plan["load"]["operations_per_second"]["value"], 950.0);
    assert_eq!(plan["load"]["rows"]["value"], 950.0 * (86_400.0 + 900.0));
    let how = plan["load"]["rows"]["how"].as_str().unwrap();
    assert_eq!(how, "950 a second × (86400 s to live + 900 s until the next sweep)");
    for store in ["sqlite", "postgres"] {
        let of = &plan["stores"][store];
        assert_eq!(of["writes_per_second"]["value"], 2_850.0);
        assert_eq!(of["syncs_per_second_max"]["value"], 1_900.0);
        let record = of["bytes_per_record"]["value"].as_f64().unwrap();
        assert!(of["disk_bytes"]["value"].as_f64().unwrap() > record * 82_000_000.0);
    }
    assert_eq!(plan["stores"]["redis"]["writes_per_second"]["value"], 1_900.0);
}

#[test]
fn people_read_a_section_for_each_store() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let output = command.args(["plan", "--rate", "1000/s", "--ttl", "24h"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("load\n  operations   1,000 a second\n"), "{text}");
    for line in ["\nsqlite\n  record ", "\npostgres\n", "\nredis\n", "  rows         87,300,000\n"]
    {
        assert!(text.contains(line), "{line:?}: {text}");
    }
}

#[test]
fn what_is_no_rate_is_exit_code_2() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let output = command.args(["plan", "--rate", "1000", "--ttl", "24h"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("such as \"1000/s\""));
}
