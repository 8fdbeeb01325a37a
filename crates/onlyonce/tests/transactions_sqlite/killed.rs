//! Processes that are killed before, amid and after the commit, and the retry that follows.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, io, thread};

use http::StatusCode;
use onlyonce::transaction::{Begun, Reply, Transactions};
use rusqlite::Connection;

use crate::lab::{Lab, ROLLBACK_JOURNAL, WAL, charge, insert_charge, mine, open, replayed, tiered};

// R125, R126
#[test]
fn a_killed_process_leaves_all_of_the_operation_or_nothing() {
    let labs = [(WAL, Lab::new()), (ROLLBACK_JOURNAL, Lab::with(ROLLBACK_JOURNAL))];
    let mut hits = POINTS.map(|point| (point, 0));
    let (mut cycle, mut committed_amid) = (0, 0);
    while cycle < tiered(200) {
        for (number, point) in POINTS.into_iter().enumerate() {
            let (settings, lab) = &labs[cycle / POINTS.len() % 2];
            let key = format!("k{cycle}");
            let told = kill_at(point, settings, lab, &key, cycle);
            let was_committed = retry(lab, &key, told);
            assert!(point != "begun" && point != "worked" || !was_committed, "{point}");
            assert!(point != "committed" || was_committed);
            committed_amid += usize::from(point == "amid" && was_committed);
            hits[number].1 += 1;
            cycle += 1;
        }
    }
    println!("{cycle} kills: {hits:?}, of those amid {committed_amid} had committed");
    assert!(hits.iter().all(|(_, count)| *count >= 3), "{hits:?}");
    let charges: i64 = labs.iter().map(|(_, lab)| lab.charges()).sum();
    assert_eq!(charges, cycle as i64);
}

/// Starts a child, kills it at `point`, and returns the answer that it told before.
fn kill_at(point: &str, settings: &str, lab: &Lab, key: &str, cycle: usize) -> Option<String> {
    let this = env::current_exe().unwrap();
    let mut command = Command::new(this);
    command.args(["--ignored", "--exact", "--nocapture", "killed::child_that_charges"]);
    command.env(PATH, lab.path()).env(SETTINGS, settings).env(KEY, key).env(POINT, point);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let told = wait_for(&mut said, &format!("at {point} "));
    if point == "amid" {
        thread::sleep(Duration::from_micros(cycle as u64 * 997 % 8_000));
    }
    kill(&mut child);
    (point == "committed").then_some(told)
}

/// The rest of the line that starts with `prefix`.
fn wait_for(said: &mut BufReader<ChildStdout>, prefix: &str) -> String {
    for line in said.lines() {
        let line = line.unwrap();
        if let Some((_, rest)) = line.split_once(prefix) {
            return rest.to_owned();
        }
    }
    panic!("the child ended before {prefix}");
}

fn kill(child: &mut Child) {
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Retries after a kill, and returns whether the child had committed. `told` is what it had answered.
fn retry(lab: &Lab, key: &str, told: Option<String>) -> bool {
    let mut db = lab.open();
    let (was_committed, answer) = match Transactions::new().begin_in(&mut db, &charge(key)).unwrap()
    {
        Begun::Mine(tx) => {
            assert_eq!(effects(&tx, tx.operation_id()), [0, 0], "{key}");
            insert_charge(&tx);
            tx.outbox("charges", None, b"charged").unwrap();
            (false, tx.complete(unique_reply()).unwrap())
        }
        Begun::Replay(reply) => (true, reply),
        other => panic!("{key}: {other:?}"),
    };
    assert!(told.is_none_or(|told| told.as_bytes() == answer.body), "{key}");
    assert_eq!(replayed(&mut db, &charge(key)), answer, "{key}");
    let id = "SELECT id FROM onlyonce_transactional WHERE key = ?1";
    let id: String = db.query_row(id, [key], |row| row.get(0)).unwrap();
    assert_eq!(effects(&db, &id), [1, 1], "{key}");
    was_committed
}

/// The charges and the messages of an operation.
fn effects(db: &Connection, operation: &str) -> [i64; 2] {
    ["charge", "onlyonce_outbox"].map(|table| {
        let count = format!("SELECT count(*) FROM {table} WHERE operation = ?1");
        db.query_row(&count, [operation], |row| row.get(0)).unwrap()
    })
}

#[test]
#[ignore = "a child of the test above"]
fn child_that_charges() {
    let [path, settings, key] = [PATH, SETTINGS, KEY].map(|name| env::var(name).unwrap());
    let mut db = open(path.as_ref(), &settings);
    let tx = mine(&mut db, &charge(&key));
    reach("begun", "");
    insert_charge(&tx);
    tx.outbox("charges", None, b"charged").unwrap();
    reach("worked", "");
    reach("amid", "");
    let reply = tx.complete(unique_reply()).unwrap();
    reach("committed", &String::from_utf8_lossy(&reply.body));
    thread::sleep(A_LONG_TIME);
}

/// Tells the parent that the point is reached, and waits to be killed there; amid the commit it goes on.
fn reach(point: &str, told: &str) {
    if env::var(POINT).unwrap() != point {
        return;
    }
    let mut parent = io::stdout().lock();
    writeln!(parent, "at {point} {told}").unwrap();
    parent.flush().unwrap();
    if point != "amid" {
        thread::sleep(A_LONG_TIME);
    }
}

/// Another answer in every process.
fn unique_reply() -> Reply {
    Reply::new(StatusCode::CREATED, format!("charged by {}", std::process::id()))
}

const POINTS: [&str; 4] = ["begun", "worked", "amid", "committed"];
const PATH: &str = "ONLYONCE_TEST_FILE";
const SETTINGS: &str = "ONLYONCE_TEST_SETTINGS";
const KEY: &str = "ONLYONCE_TEST_KEY";
const POINT: &str = "ONLYONCE_TEST_POINT";
const A_LONG_TIME: Duration = Duration::from_secs(600);
