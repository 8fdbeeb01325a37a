//! The same on the stores of many nodes.

use serde_json::json;
use servers::{Postgres, Redis};

use crate::lab::{Lab, text};

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
