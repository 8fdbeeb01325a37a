//! `onlyonce steps`, as an operator uses it.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use http::StatusCode;
use onlyonce::scope::Principal;
use onlyonce::steps::{Run, SqliteDatabase, Steps, Stopped};
use onlyonce::transaction::Reply;
use onlyonce::{Failure, Operation};
use serde_json::Value;
use servers::Postgres;

fn steps(store: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.arg("steps").args(arguments).args(["--store", store]).stdin(Stdio::null());
    command.env_remove("USER").output().unwrap()
}

/// The standard output of a command that must have ended well.
fn told(store: &str, arguments: &[&str]) -> String {
    let output = steps(store, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(store: &str, arguments: &[&str], code: i32) -> String {
    let output = steps(store, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn an_operator_finds_out_why_operations_of_a_file_do_not_go_on_and_ends_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.db");
    let store = format!("sqlite:{}", file.display());
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
    let shop = SqliteDatabase::new(db).unwrap();
    let mail = Steps::new("mail", async |mut run: Run<SqliteDatabase>, _: u32| {
        run.step("order saved", async |_tx| Ok(4711)).await?;
        run.call_once("mail sent", async |_| Err::<(), _>(Failure::Unknown("no answer".into())))
            .await?;
        run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
    });
    let charge = Steps::new("charge", async |_: Run<SqliteDatabase>, _: u32| {
        Err(Stopped::failed("the card network is away"))
    })
    .with_retry_pause(Duration::from_secs(600));
    let operation =
        |key| Operation::new("POST /orders", Principal::of("account", b"acct_1"), key).unwrap();
    let _ = mail.run(&shop, &operation("in doubt"), &7998).await.unwrap();
    charge.run(&shop, &operation("waits"), &7998).await.unwrap_err();

    let list = told(&store, &["list"]);
    let lines: Vec<_> = list.lines().collect();
    assert!(lines[0].starts_with("STATE"), "{list}");
    assert!(lines[1].starts_with("unknown") && lines[1].contains("order saved"), "{list}");
    assert!(lines[2].starts_with("waiting") && lines[2].contains("waits"), "{list}");
    let json: Value =
        serde_json::from_str(&told(&store, &["list", "--state", "waiting", "--format", "json"]))
            .unwrap();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!(json[0]["error"], "the card network is away");

    let shown = told(&store, &["show", "in doubt"]);
    assert!(shown.starts_with("\"mail sent\" may have been done"), "{shown}");
    assert!(shown.contains("order saved  4711"), "{shown}");
    let json: Value =
        serde_json::from_str(&told(&store, &["show", "in doubt", "--format", "json"])).unwrap();
    assert_eq!(
        (&json["points"][0]["value"], &json["calling"]),
        (&4711.into(), &"mail sent".into())
    );

    let retry = ["retry", "in doubt", "--reason", "try"];
    assert!(refused(&store, &retry, 1).contains("--call-again"));
    let revision = json["revision"].to_string();
    let again = ["retry", "in doubt", "--reason", "not sent", "--call-again"];
    assert!(shown.contains(&format!("--call-again {revision}")), "{shown}");
    assert!(refused(&store, &[&again[..], &["0"]].concat(), 1).contains("has changed"));
    assert!(refused(&store, &[&again[..], &[&revision]].concat(), 1).contains("on its way until"));
    refused(&store, &["retry", "in doubt", "--reason", "no revision", "--force"], 2);
    told(&store, &[&again[..], &[&revision, "--force"]].concat());
    let _ = mail.run(&shop, &operation("in doubt"), &7998).await.unwrap();
    let late = refused(&store, &[&again[..], &[&revision, "--force"]].concat(), 1);
    assert!(late.contains("has changed"), "{late}");
    told(
        &store,
        &["settle", "in doubt", "--status", "201", "--reason", "sent by hand", "--who", "ann"],
    );
    assert!(refused(&store, &retry, 1).contains("the operation is completed"));
    let (id, waits) =
        (json["id"].as_str().unwrap(), told(&store, &["retry", "waits", "--reason", "back"]));
    assert!(waits.starts_with("retried: "), "{waits}");
    assert!(told(&store, &["show", id]).contains("ann: sent by hand"));
    assert!(refused(&store, &["show", "nobody"], 1).contains("no operation"));
}

/// A caller chooses its keys, so also the text of somebody else's id.
#[tokio::test]
async fn a_key_that_is_the_text_of_an_id_makes_no_operator_change_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.db");
    let store = format!("sqlite:{}", file.display());
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
    let shop = SqliteDatabase::new(db).unwrap();
    let waits = Steps::new("charge", async |_: Run<SqliteDatabase>, _: u32| {
        Err(Stopped::failed("the card network is away"))
    });
    let operation = |caller: &[u8], key: &str| {
        Operation::new("POST /orders", Principal::of("account", caller), key).unwrap()
    };
    waits.run(&shop, &operation(b"ann", "order-1"), &1).await.unwrap_err();
    let shown = |arguments: &[&str]| -> Value {
        serde_json::from_str(&told(&store, &[arguments, &["--format", "json"]].concat())).unwrap()
    };
    let of_ann = shown(&["show", "order-1"])["id"].as_str().unwrap().to_owned();
    waits.run(&shop, &operation(b"mallory", &of_ann), &1).await.unwrap_err();
    let of_mallory = shown(&["show", "--key", &of_ann])["id"].as_str().unwrap().to_owned();
    assert_ne!(of_ann, of_mallory);
    let settle = ["settle", &of_ann, "--status", "201", "--reason", "done by phone"];
    for command in [&["show", &of_ann][..], &["retry", &of_ann, "--reason", "back"], &settle] {
        let why = refused(&store, command, 1);
        assert!(
            why.contains(&of_mallory) && why.contains("--id") && why.contains("--key"),
            "{why}"
        );
    }
    let settle = ["settle", "--id", &of_ann, "--status", "201", "--reason", "done by phone"];
    told(&store, &settle);
    let states = [&["--id", of_ann.as_str()], &["--key", of_ann.as_str()]];
    let states = states.map(|name| shown(&[&["show"], &name[..]].concat())["state"].clone());
    assert_eq!(states, ["completed", "waiting"]);
    refused(&store, &["show"], 2);
    refused(&store, &["show", "order-1", "--key", "order-1"], 2);
}

#[test]
fn a_store_without_such_operations_says_so() {
    refused("redis://127.0.0.1:1", &["list"], 2);
    refused("memory:", &["list"], 2);
    refused("sqlite:/nowhere/shop.db", &["list"], 3);
    refused("sqlite:shop.db", &["list", "--state", "lost"], 2);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("other.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    let message = refused(&format!("sqlite:{}", file.display()), &["list"], 3);
    assert!(message.contains("not installed"), "{message}");
}

#[test]
fn operations_in_postgres_are_listed_and_settled() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let migrate =
        Command::new(env!("CARGO_BIN_EXE_onlyonce")).args(["migrate", "--to", &url]).output();
    assert!(migrate.unwrap().status.success());
    assert_eq!(told(&url, &["list", "--format", "json"]), "[]\n");
    let id = "11111111-1111-1111-1111-111111111111";
    let insert = format!(
        "SELECT onlyonce.steps_insert('{id}', 'charge', 's', 'p', 'order-1', '\\x00', 60000, '{{}}', 1, gen_random_uuid(), 0, NULL)"
    );
    postgres.sql(&url, &insert);
    postgres.sql(
        &url,
        &format!("SELECT onlyonce.steps_swap('{id}', 1, NULL, 'stuck', NULL, 600000, 3, NULL, false, 0, 'point 2 is another')"),
    );
    let list = told(&url, &["list", "--state", "stuck"]);
    assert!(list.contains("order-1") && list.contains("charge"), "{list}");
    assert!(told(&url, &["show", "order-1"]).contains("point 2 is another"));
    postgres.sql(
        &url,
        "ALTER TABLE onlyonce.steps DROP CONSTRAINT steps_state_check, DROP CONSTRAINT open_is_due;
         UPDATE onlyonce.steps SET state = 'paused'",
    );
    let list = told(&url, &["list"]);
    assert!(list.lines().nth(1).unwrap().starts_with("unreadable"), "{list}");
    let shown = told(&url, &["show", id]);
    assert!(shown.starts_with("It cannot be read") && shown.contains("\"paused\""), "{shown}");
    let retry = refused(&url, &["retry", id, "--reason", "try"], 1);
    assert!(retry.contains("the operation is unreadable"), "{retry}");
    postgres.sql(&url, "UPDATE onlyonce.steps SET state = 'stuck'");
    let settle = ["settle", id, "--status", "402", "--header", "x-a: b", "--reason", "declined"];
    told(&url, &settle);
    let row = "SELECT state, status, headers->>'x-a' FROM onlyonce.steps";
    assert_eq!(postgres.sql(&url, row), "completed|402|b");
    refused(&url, &settle, 1);
}
