//! The same on the stores of many nodes.

use serde_json::json;
use servers::{Postgres, Redis};

use crate::lab::{Lab, ask, text};

fn find_settle_release_forget(store: &str) {
    let lab = Lab::with(&format!("store = \"{store}\""), "", "");
    let [settled, released] = ["order-1", "order-2"].map(|key| lab.unknown(key));
    lab.send("/pay", "order-3");
    let listed = lab.get("operations?state=unknown");
    assert_eq!(listed["operations"].as_array().unwrap().len(), 2, "{listed}");
    let answer = json!({"status": 201, "body": "yes", "reason": "seen"});
    assert_eq!(lab.post(&format!("operations/{settled}/settle"), &answer).status, 200);
    assert_eq!(lab.send("/hangs-up", "order-1").body, "yes");
    let force = json!({"force": true, "reason": "not there"});
    assert_eq!(lab.post(&format!("operations/{released}/release"), &force).status, 200);
    lab.send("/hangs-up", "order-2");
    assert_eq!(lab.service.executions("order-2"), 2);
    let completed = lab.id("order-3");
    assert_eq!(
        lab.post(&format!("operations/{completed}/forget"), &json!({"reason": "r"})).status,
        200
    );
    lab.send("/pay", "order-3");
    assert_eq!(lab.service.executions("order-3"), 2);
    // Another process on the same store.
    let failed =
        lab.command(&["keys", "settle", "order-2", "--failed", "--reason", "r", "--store", store]);
    assert!(failed.status.success(), "{}", text(&failed.stderr));
    assert_eq!(lab.send("/hangs-up", "order-2").code(), "idempotency_operation_failed");
}

#[test]
fn operators_find_and_change_on_postgres() {
    let postgres = Postgres::start();
    find_settle_release_forget(&postgres.database());
}

#[test]
fn operators_find_and_change_on_redis() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    find_settle_release_forget(&redis.url());
}

// threat K37
#[test]
fn two_deployments_behind_one_filter_do_not_answer_for_each_other() {
    let (postgres, redis) = (Postgres::start(), Redis::start(&[]));
    let database = postgres.database();
    let copy = postgres.database();
    let top = |store: &str| format!("store = \"{store}\"\nfilter = \"{}\"", redis.url());
    let name = |url: &str| url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    // Made first, so that its generation is that of the original.
    drop(Lab::with(&top(&database), "", ""));
    let sql = format!(
        "DROP DATABASE {}; CREATE DATABASE {} TEMPLATE {}",
        name(&copy),
        name(&copy),
        name(&database)
    );
    for statement in sql.split(';') {
        postgres.sql("postgres", statement);
    }
    let mut first = Lab::with(&top(&database), "", "");
    assert_eq!(first.send("/pay", "order-1").header("idempotent-replayed"), None);
    until(|| redis.command("KEYS oo:filter/*") != "*0");
    let runs = |store: &str, what: &str| {
        let other = Lab::with(&top(store), "", "");
        // Its authority has told the time, so that the filter may be asked.
        other.send("/pay", "another");
        let answer = other.send("/pay", "order-1");
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None), "{what}");
        assert_eq!(other.service.executions("order-1"), 1, "{what}");
    };
    let is_query = if database.contains('?') { '&' } else { '?' };
    runs(&format!("{database}{is_query}schema=second"), "another schema");
    runs(&copy, "a copy of the database");
    assert_eq!(first.send("/pay", "order-1").header("idempotent-replayed"), Some("true"));
    // Of a copy of the whole disk all that differs is what the command changes.
    let migrate = ["migrate", "--to", &database, "--new-identity"];
    let refused = first.command(&migrate);
    assert_eq!(refused.status.code(), Some(3), "a gateway runs on it");
    assert!(text(&refused.stderr).contains("is in use by"), "{}", text(&refused.stderr));
    first.stop();
    until(|| first.command(&migrate).status.success());
    let renewed = Lab::with(&top(&database), "", "");
    renewed.send("/pay", "another");
    let hits = || ask(&renewed.admin, "GET", "/metrics", "", "").body;
    assert_eq!(renewed.send("/pay", "order-1").header("idempotent-replayed"), Some("true"));
    assert!(hits().contains("onlyonce_filter_hits_total 0"), "Postgres has answered: {}", hits());
    drop(renewed);
    postgres.sql(&name(&database), "DROP SCHEMA onlyonce CASCADE");
    runs(&database, "the same schema, made anew");
}

/// Waits until it is so.
fn until(is_so: impl Fn() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("waited in vain");
}

#[test]
fn who_reads_from_a_store_that_is_down_is_told_that_nothing_was_changed() {
    let mut postgres = Postgres::start();
    let lab = Lab::with(&format!("store = \"{}\"", postgres.database()), "", "");
    lab.unknown("order-1");
    postgres.stop();
    let said = |arguments: &[&str]| {
        let output = lab.at_admin(arguments);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    let reading: [&[&str]; 3] = [
        &["keys", "list"],
        &["keys", "show", "order-1"],
        &["keys", "release", "--all", "--state", "unknown", "--reason", "r", "--dry-run"],
    ];
    for arguments in reading {
        let said = said(arguments);
        assert!(said.contains("nothing was changed"), "{arguments:?}: {said}");
        assert!(!said.contains("may have been made"), "{arguments:?}: {said}");
    }
}
