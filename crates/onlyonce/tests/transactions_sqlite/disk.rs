//! A disk that fails under the commit.

use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use onlyonce::transaction::{Begun, TransactionError, Transactions};
use rusqlite::Connection;

use crate::lab::{Lab, ROLLBACK_JOURNAL, WAL, charge, created, open, replayed};

// R125, R126
#[test]
fn an_operation_has_one_effect_over_errors_of_the_disk() {
    if Command::new("strace").arg("--version").output().is_err() {
        eprintln!("skipped: there is no strace to make the disk fail");
        return;
    }
    for settings in [WAL, ROLLBACK_JOURNAL] {
        let mut unsure = 0;
        for error in ERRORS {
            let lab = Lab::with(settings);
            let said = child_over(error, settings, &lab);
            unsure += said.matches("fault: Unsure").count();
            assert!(said.contains("met a fault"), "{error} was never met: {said}");
            let charged_once = "SELECT count(*) FROM (SELECT 1 FROM charge GROUP BY operation
                                 HAVING count(*) = 1)";
            assert_eq!(lab.number(charged_once), OPERATIONS, "{error}");
            assert_eq!(lab.charges(), OPERATIONS, "{error}");
            for number in 0..OPERATIONS {
                let answer = replayed(&mut lab.open(), &charge(&format!("k{number}")));
                assert_eq!(answer, created(), "{error}");
            }
        }
        println!("{settings}: {unsure} commits were unsure");
        assert!(unsure > 0, "no commit was unsure");
    }
}

fn child_over(error: &str, settings: &str, lab: &Lab) -> String {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={error}")]);
    command.arg(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "disk::child_that_charges"]);
    let done = command.env(PATH, lab.path()).env(SETTINGS, settings).output().unwrap();
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}: {said}");
    said
}

#[test]
#[ignore = "a child of the test above"]
fn child_that_charges() {
    let [path, settings] = [PATH, SETTINGS].map(|name| env::var(name).unwrap());
    let mut db = open(path.as_ref(), &settings);
    for number in 0..OPERATIONS {
        let done = (0..TRIES).find(|_| match charge_once(&mut db, number) {
            Ok(is_done) => is_done,
            Err(error) => {
                println!("met a fault: {error:?}");
                thread::sleep(Duration::from_millis(5));
                false
            }
        });
        assert!(done.is_some(), "k{number} was never charged");
    }
}

fn charge_once(db: &mut Connection, number: i64) -> Result<bool, TransactionError> {
    match Transactions::new().begin_in(db, &charge(&format!("k{number}")))? {
        Begun::Mine(tx) => {
            let insert = tx.execute("INSERT INTO charge VALUES (?1, 7998)", [tx.operation_id()]);
            insert.map_err(|error| TransactionError::NotDone(error.into()))?;
            tx.complete(created()).map(|_| true)
        }
        Begun::Replay(_) => Ok(true),
        Begun::InProgress { .. } => Ok(false),
        Begun::Reused => panic!("the same payload"),
    }
}

const ERRORS: [&str; 4] = [
    "fsync,fdatasync:error=EIO:when=7+11",
    "fsync,fdatasync:error=ENOSPC:when=12+9",
    "pwrite64:error=EIO:when=21+31",
    "pwrite64:error=ENOSPC:when=30+37",
];
const PATH: &str = "ONLYONCE_TEST_FILE";
const SETTINGS: &str = "ONLYONCE_TEST_SETTINGS";
const OPERATIONS: i64 = 20;
const TRIES: usize = 50;
