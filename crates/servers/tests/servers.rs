//! The servers start, forget nothing that they promised to keep when killed, and leave nothing behind.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use servers::{Patroni, Pgbouncer, Postgres, Redis};

#[test]
fn postgres_keeps_what_was_committed_when_it_is_killed_and_leaves_no_folder() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    postgres.sql(&database, "CREATE TABLE kept AS SELECT 7 AS number");
    postgres.kill();
    assert!(TcpStream::connect(("127.0.0.1", postgres.port())).is_err(), "a killed server answers");
    postgres.start_again();
    assert_eq!(postgres.sql(&database, "SELECT number FROM kept"), "7");
    let data = postgres.data();
    drop(postgres);
    assert!(!data.exists());
}

#[test]
fn databases_are_apart() {
    let postgres = Postgres::start();
    let (one, two) = (postgres.database(), postgres.database());
    postgres.sql(&one, "CREATE TABLE mine ()");
    assert_eq!(postgres.sql(&two, "SELECT count(*) FROM pg_class WHERE relname = 'mine'"), "0");
}

#[test]
fn a_standby_follows_and_is_promoted() {
    let postgres = Postgres::start();
    let standby = postgres.standby("second");
    assert_eq!(standby.sql("postgres", "SELECT pg_is_in_recovery()"), "t");
    standby.promote();
    assert_eq!(standby.sql("postgres", "SELECT pg_is_in_recovery()"), "f");
}

#[test]
fn redis_with_an_append_only_file_keeps_its_data_when_it_is_killed() {
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    assert!(ask(&redis, "SET kept 7").starts_with("+OK"));
    redis.kill();
    redis.start_again();
    assert!(ask(&redis, "GET kept").ends_with("7\r\n"));
}

#[test]
fn pgbouncer_passes_statements_on() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let pooler = Pgbouncer::start(&postgres, "transaction");
    assert_eq!(postgres.sql(&pooler.url(&database), "SELECT 7"), "7");
}

#[test]
fn a_cluster_of_patroni_ends_with_all_that_it_runs() {
    let Some(mut cluster) = Patroni::start() else { return };
    let (port, folder) = (cluster.primary_port(), cluster.folder().to_owned());
    // etcd, and two times Patroni and Postgres.
    assert_eq!(programs_in(&folder), 5);
    cluster.kill_primary();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "a killed server answers");
    assert_eq!(programs_in(&folder), 3);
    drop(cluster);
    assert_eq!(programs_in(&folder), 0);
    assert!(!folder.exists());
}

/// How many programs run that were started with the name of a file in `folder`.
fn programs_in(folder: &Path) -> usize {
    let processes = fs::read_dir("/proc").expect("Linux lists its processes").flatten();
    let commands = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let folder = folder.to_str().expect("temporary folders have readable names");
    commands.filter(|command| String::from_utf8_lossy(command).contains(folder)).count()
}

fn ask(redis: &Redis, command: &str) -> String {
    use std::io::{Read, Write};
    let mut connection = TcpStream::connect(("127.0.0.1", redis.port())).expect("it listens");
    connection.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers");
    answer.strip_suffix("+OK\r\n").expect("it says good-bye").to_owned()
}
