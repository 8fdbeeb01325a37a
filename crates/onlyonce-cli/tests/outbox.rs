//! `onlyonce outbox`, on Postgres and on a SQLite file.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::process::{Command, Output, Stdio};

use onlyonce::store::postgres::PostgresStore;
use onlyonce::transaction::Transactions;
use serde_json::Value;
use servers::Postgres;

/// A database with an outbox.
enum Lab {
    Postgres(Postgres, String),
    Sqlite(tempfile::TempDir),
}

impl Lab {
    fn postgres() -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        let install = async { PostgresStore::open(&url).await.unwrap().close().await };
        tokio::runtime::Runtime::new().unwrap().block_on(install);
        Self::Postgres(postgres, url)
    }

    fn sqlite() -> Self {
        let lab = Self::Sqlite(tempfile::tempdir().unwrap());
        let db = rusqlite::Connection::open(lab.file()).unwrap();
        Transactions::new().prepare(&db).unwrap();
        lab
    }

    fn file(&self) -> std::path::PathBuf {
        let Self::Sqlite(folder) = self else { panic!("it is no file") };
        folder.path().join("shop.db")
    }

    fn store(&self) -> String {
        match self {
            Self::Postgres(_, url) => url.clone(),
            Self::Sqlite(_) => format!("sqlite:{}", self.file().display()),
        }
    }

    /// A message with this number in its id and its payload, as a relay leaves it.
    fn add(&self, number: usize, topic: &str, is_parked: bool) {
        let id = id(number);
        let operation = self::id(0);
        match self {
            Self::Postgres(postgres, url) => {
                let parked = if is_parked { "now(), 'infinity'" } else { "NULL, '-infinity'" };
                postgres.sql(
                    url,
                    &format!(
                        "INSERT INTO onlyonce.outbox
                           (id, operation, topic, key, payload, created_at, attempts, error, parked_at, due_at)
                         VALUES ('{id}', '{operation}', '{topic}', 'k', 'paid {number}', now() - interval '1 hour',
                                 8, E'no \\033[2J', {parked})"
                    ),
                );
            }
            Self::Sqlite(_) => {
                let parked = if is_parked { "0, 9223372036854775807" } else { "NULL, 0" };
                let db = rusqlite::Connection::open(self.file()).unwrap();
                db.execute_batch(&format!(
                    "INSERT INTO onlyonce_outbox
                       (id, operation, topic, key, payload, created_at, attempts, error, parked_at, due_at)
                     VALUES ('{id}', '{operation}', '{topic}', 'k', CAST('paid {number}' AS BLOB),
                             (unixepoch() - 3600) * 1000, 8, 'no ' || char(27) || '[2J', {parked})"
                ))
                .unwrap();
            }
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.arg("outbox").args(arguments).args(["--store", &self.store()]).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }
}

fn id(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// R137: what is parked is seen, retried and discarded by an operator.
/// An operator may name another database by mistake.
#[test]
fn a_database_without_onlyonce_is_refused_and_left_as_it_is() {
    let postgres = Postgres::start();
    let url = postgres.database();
    for command in [["outbox", "status"], ["outbox", "list"], ["steps", "list"]] {
        let onlyonce = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        let output = { onlyonce }.args(command).args(["--store", &url]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{command:?}: {said}");
        assert!(said.contains("is it the right one?"), "{command:?}: {said}");
    }
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'onlyonce'";
    assert_eq!(postgres.sql(&url, schemas), "0");
}

#[test]
fn an_operator_sees_retries_and_discards_parked_messages() {
    for lab in [Lab::postgres(), Lab::sqlite()] {
        lab.add(1, "charges", true);
        lab.add(2, "charges", false);
        lab.add(3, "refunds", true);
        status_tells_what_waits(&lab);
        list_hides_payloads_from_screens(&lab);
        a_dry_run_changes_nothing(&lab);
        retried_is_not_parked(&lab);
        discarded_is_printed_and_gone(&lab);
        assert_eq!(lab.run(&["status"]).status.code(), Some(0));
    }
}

fn status_tells_what_waits(lab: &Lab) {
    let status = lab.run(&["status"]);
    assert_eq!(status.status.code(), Some(1), "something is parked");
    let table = text(&status.stdout);
    let lines: Vec<_> =
        table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines[0], ["TOPIC", "WAITING", "OLDEST", "PARKED"]);
    assert_eq!(lines[1], ["charges", "1", "1", "h", "0", "m", "1"]);
    assert_eq!(lines[2], ["refunds", "0", "-", "1"]);
    let json = lab.json(&["status"]);
    assert_eq!((json["waiting"].as_u64(), json["parked"].as_u64()), (Some(1), Some(2)));
    assert!(json["oldest_seconds"].as_f64().unwrap() >= 3_600.0, "{json}");
    assert_eq!(json["topics"][1]["oldest_seconds"], Value::Null);
    assert_eq!(lab.json(&["status", "--topic", "refunds"])["waiting"], 0);
}

fn list_hides_payloads_from_screens(lab: &Lab) {
    let listed = text(&lab.run(&["list"]).stdout);
    assert!(listed.contains(&id(1)) && listed.contains(&id(3)), "{listed}");
    assert!(!listed.contains(&id(2)), "it is not parked: {listed}");
    assert!(!listed.contains("paid") && !listed.contains('\u{1b}'), "{listed}");
    let json = lab.json(&["list", "--topic", "charges"]);
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!((&json[0]["id"], &json[0]["payload"]), (&id(1).into(), &"paid 1".into()));
    assert_eq!((&json[0]["attempts"], &json[0]["key"]), (&8.into(), &"k".into()));
    let limited = lab.run(&["list", "--limit", "1"]);
    assert!(text(&limited.stderr).contains("there are more"), "{limited:?}");
}

fn a_dry_run_changes_nothing(lab: &Lab) {
    let id = id(1);
    for (which, count) in
        [(&["--all"][..], 2), (&["--id", &id], 1), (&["--all", "--topic", "charges"], 1)]
    {
        for command in [&["retry"][..], &["discard", "--reason", "why"]] {
            let dry = lab.run(&[command, which, &["--dry-run"]].concat());
            let would = format!("would change {count}; nothing was changed");
            assert!(dry.status.success() && text(&dry.stderr).contains(&would), "{dry:?}");
            assert!(text(&dry.stdout).contains(&id), "{dry:?}");
            assert_eq!(lab.json(&["status"])["parked"], 2, "{command:?} {which:?}");
        }
    }
}

fn retried_is_not_parked(lab: &Lab) {
    let nobody = lab.run(&["retry", "--id", &id(2)]);
    assert_eq!(nobody.status.code(), Some(1), "it is not parked: {nobody:?}");
    let retried = lab.run(&["retry", "--all", "--topic", "charges"]);
    assert_eq!(text(&retried.stdout), "due again: 1\n");
    let status = lab.json(&["status"]);
    assert_eq!((&status["waiting"], &status["parked"]), (&2.into(), &1.into()));
}

fn discarded_is_printed_and_gone(lab: &Lab) {
    let id = id(3);
    let why = ["discard", "--id", &id, "--who", "ann", "--reason", "refunded by hand"];
    let discarded = lab.json(&why);
    assert_eq!((&discarded["id"], &discarded["payload"]), (&id.as_str().into(), &"paid 3".into()));
    assert_eq!(discarded["discarded_by"], "ann");
    assert_eq!(discarded["reason"], "refunded by hand");
    assert_eq!(lab.run(&why).status.code(), Some(1), "it is gone");
}

// A reader that has left, and a disk without room.
#[test]
fn what_cannot_be_printed_is_not_discarded() {
    let lab = Lab::sqlite();
    lab.add(1, "charges", true);
    lab.add(2, "charges", true);
    let (reader, left) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for out in [Stdio::from(left), Stdio::from(full)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.args(["outbox", "discard", "--all", "--reason", "why", "--store", &lab.store()]);
        let output = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(lab.json(&["status"])["parked"], 2);
    }
}

#[test]
fn many_are_changed_only_if_that_is_meant() {
    let lab = Lab::sqlite();
    (1..=120).for_each(|number| lab.add(number, "charges", true));
    let asked = lab.run(&["discard", "--all", "--reason", "why"]);
    assert_eq!(asked.status.code(), Some(2));
    assert!(text(&asked.stderr).contains("120 messages would be changed"), "{asked:?}");
    assert_eq!(lab.json(&["status"])["parked"], 120);
    let discarded = lab.run(&["discard", "--all", "--yes", "--reason", "why", "--format", "json"]);
    assert_eq!(text(&discarded.stdout).lines().count(), 120);
    assert_eq!(lab.json(&["status"])["topics"], serde_json::json!([]));
}

#[test]
fn wrong_arguments_are_usage_and_a_missing_database_is_not() {
    let lab = Lab::sqlite();
    let code = |arguments: &[&str]| lab.run(arguments).status.code();
    assert_eq!(code(&["retry"]), Some(2));
    assert_eq!(code(&["retry", "--all", "--id", &id(1)]), Some(2));
    assert_eq!(code(&["discard", "--id", &id(1)]), Some(2), "without a reason");
    assert_eq!(code(&["discard", "--id", &id(1), "--reason", " "]), Some(2));
    let on = |store: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.args(["outbox", "status", "--store", store]).output().unwrap()
    };
    assert_eq!(on("redis://127.0.0.1:1").status.code(), Some(2));
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.db");
    assert_eq!(on(&format!("sqlite:{}", missing.display())).status.code(), Some(3));
    assert!(!missing.exists());
    rusqlite::Connection::open(&missing).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    let told = on(&format!("sqlite:{}", missing.display()));
    assert_eq!(told.status.code(), Some(3));
    assert!(text(&told.stderr).contains("has not the tables of onlyonce"), "{told:?}");
    assert_eq!(on("postgres://nobody@127.0.0.1:1/none").status.code(), Some(3));
}
