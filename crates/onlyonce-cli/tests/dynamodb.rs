//! The commands about DynamoDB: the table is described, made, judged and filled.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]
#![cfg(feature = "dynamodb")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use onlyonce::clock::StoreTime;
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{Kept, KeyText, Response, SettledBy, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::store::{Draft, Guard, Lease, Next, Store, Swap};
use serde_json::Value;
use servers::{DynamoDb, DynamoWire, Emulator, WireFault};

fn onlyonce(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]);
    command.args(arguments).output().unwrap()
}

#[track_caller]
fn told(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The verdicts of `doctor`, by setting.
fn verdict(store: &str, setting: &str) -> String {
    let output = onlyonce(&["doctor", "--store", store, "--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let promises = report["promises"].as_array().unwrap().iter();
    let mut findings = promises.flat_map(|promise| promise["findings"].as_array().unwrap());
    let finding = findings.find(|finding| finding["setting"] == setting);
    finding.unwrap_or_else(|| panic!("no {setting}: {report:#}"))["verdict"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_table_is_made_and_judged() {
    for emulator in [Emulator::Dynoxide, Emulator::Moto] {
        let Some(server) = DynamoDb::start_as(emulator) else { continue };
        let store = format!("dynamodb:keys?endpoint={}", server.url());
        let refused = onlyonce(&["keys", "list", "--store", &store]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("there is no table keys"));
        assert_eq!(verdict(&store, "table"), "does_not_hold");
        assert!(told(&onlyonce(&["migrate", "--to", &store])).contains("the table was made"));
        assert!(told(&onlyonce(&["migrate", "--to", &store])).contains("the table was there"));
        for setting in ["table", "time to live", "capacity", "audit trail", "clock"] {
            assert_eq!(verdict(&store, setting), "holds", "{emulator:?}: {setting}");
        }
        assert_eq!(verdict(&store, "deletion protection"), "at_risk");
        // moto answers the question for the other regions with an error of its own.
        let replicas = if emulator == Emulator::Moto { "at_risk" } else { "holds" };
        assert_eq!(verdict(&store, "replicas"), replicas, "{emulator:?}");
        // dynoxide does not know it.
        let recovery = if emulator == Emulator::Moto { "holds" } else { "at_risk" };
        assert_eq!(verdict(&store, "point-in-time recovery"), recovery, "{emulator:?}");
    }
}

#[test]
fn a_table_for_something_else_is_refused() {
    let Some(server) = DynamoDb::start() else { return };
    let table = r#"{"TableName":"other","BillingMode":"PAY_PER_REQUEST",
        "AttributeDefinitions":[{"AttributeName":"id","AttributeType":"S"}],
        "KeySchema":[{"AttributeName":"id","KeyType":"HASH"}]}"#;
    assert_eq!(server.call("CreateTable", table).0, 200);
    let store = format!("dynamodb:other?endpoint={}", server.url());
    assert_eq!(verdict(&store, "table"), "does_not_hold");
    let refused = onlyonce(&["keys", "list", "--store", &store]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("its keys are not pk and sk"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_records_of_a_file_are_moved_to_a_table() {
    let Some(server) = DynamoDb::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.db");
    fill(&file).await;
    let from = format!("sqlite:{}", file.display());
    let to = format!("dynamodb:keys?endpoint={}", server.url());
    let moved = told(&onlyonce(&["migrate", "--from", &from, "--to", &to]));
    assert!(moved.contains("20 records moved (10 completed, 10 unknown, 0 released)"), "{moved}");
    let list = told(&onlyonce(&["keys", "list", "--store", &to, "--format", "json"]));
    assert_eq!(list.matches("\"id\"").count(), 20, "{list}");
    // The file is not used again, and the table is not filled twice.
    let again = onlyonce(&["keys", "list", "--store", &from]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("moved"));
    let other = folder.path().join("other.db");
    fill(&other).await;
    let from = format!("sqlite:{}", other.display());
    let refused = onlyonce(&["migrate", "--from", &from, "--to", &to]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has records already"));
}

/// Records that do not read are records: nothing is copied over them.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_records_do_not_read_is_not_filled() {
    let Some(server) = DynamoDb::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.db");
    fill(&file).await;
    let to = format!("dynamodb:keys?endpoint={}", server.url());
    told(&onlyonce(&["migrate", "--to", &to]));
    let newer = r#"{"TableName":"keys","Item":{"pk":{"S":"oo:00000000"},"sk":{"S":"000000000000000000000001"},
        "v":{"N":"2"},"st":{"S":"completed"}}}"#;
    assert_eq!(server.call("PutItem", newer).0, 200);
    let from = format!("sqlite:{}", file.display());
    let refused = onlyonce(&["migrate", "--from", &from, "--to", &to]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("has records already"), "{said}");
}

/// After an interruption the file may be used again. What was copied before is out of date then, and must not stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_migration_keeps_no_copy_that_is_out_of_date() {
    let Some(server) = DynamoDb::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.db");
    fill(&file).await;
    told(&onlyonce(&["migrate", "--to", &format!("dynamodb:keys?endpoint={}", server.url())]));
    let mut puts = 0;
    let wire = DynamoWire::before(&server, move |called| {
        puts += usize::from(called == "PutItem");
        if puts > 18 { WireFault::Throttled } else { WireFault::None }
    });
    let from = format!("sqlite:{}", file.display());
    let to = format!("dynamodb:keys?endpoint={}", wire.url());
    let interrupted = onlyonce(&["migrate", "--from", &from, "--to", &to]);
    let said = String::from_utf8_lossy(&interrupted.stderr).into_owned();
    assert!(said.contains("it is not finished"), "{said}");

    wire.change(|_| WireFault::None);
    let store = SqliteStore::open(&file).await.unwrap();
    for number in (1..20_u8).step_by(2) {
        let id = OperationId::from_bytes([number; 16]);
        let read = store.load(id).await.unwrap().record.unwrap();
        let to = Next::Released { expires_at: None };
        let swap = store.swap(id, Guard::Unchanged(read.revision()), to).await;
        assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
    }
    store.close().await;
    let refused = onlyonce(&["migrate", "--from", &from, "--to", &to]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("an earlier copy of a record that was changed since"), "{said}");
    assert_eq!(refused.status.code(), Some(3));
    told(&onlyonce(&["migrate", "--from", &from, "--to", &format!("{to}&prefix=anew")]));
}

/// Ten completed operations, one of them with an answer that does not fit into an item, and ten unknown ones.
async fn fill(file: &Path) {
    let store = SqliteStore::open(file).await.unwrap();
    for number in 0..20_u8 {
        let token = Token::random();
        let draft = Draft {
            id: OperationId::from_bytes([number; 16]),
            token,
            key: KeyText::new(format!("order-{number}")),
            fingerprint: Fingerprint { version: 1, canonical: [7; 32], raw: [8; 32] },
            principal: Principal::from_bytes([9; 32]),
            route: "POST /orders".into(),
            target: "h1".into(),
            lease: Lease::new(Duration::from_secs(30)),
            quiet_ms: 60_000,
            ttl_ms: 86_400_000,
            not_after: StoreTime::MAX,
        };
        assert!(store.claim(draft.clone()).await.unwrap().mine);
        let body = vec![number; if number == 0 { 900_000 } else { 300 }].into();
        let body = Kept::Bytes { body, trailers: None };
        let response =
            Arc::new(Response { status: StatusCode::CREATED, headers: HeaderMap::new(), body });
        let to = match number % 2 {
            0 => Next::Completed { settled_by: SettledBy::Owner, response, token: None },
            _ => Next::Unknown { since: None },
        };
        let guard = Guard::Owner { token, states: StateSet::of(&[StateKind::Running]) };
        assert!(matches!(store.swap(draft.id, guard, to).await, Ok(Swap::Done(_))));
    }
    store.close().await;
}

/// Before anything is asked of DynamoDB: no server runs here.
#[test]
fn a_lease_that_is_short_beside_a_second_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    let config = "upstream = \"http://127.0.0.1:9\"\nlisten = \"127.0.0.1:0\"\n\
                  store = \"dynamodb:keys?endpoint=http://127.0.0.1:9\"\n[policy]\nlease = \"2s\"\n";
    std::fs::write(&file, config).unwrap();
    let refused = onlyonce(&["serve", "--config", file.to_str().unwrap()]);
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("a lease of 2s is too short for DynamoDB"), "{told}");
}

/// Made by moto from the template of CloudFormation, it is the table that a store needs.
#[test]
fn the_template_makes_the_table_that_a_store_needs() {
    let template = told(&onlyonce(&["dynamodb", "template", "--table", "keys"]));
    let terraform =
        told(&onlyonce(&["dynamodb", "template", "--table", "keys", "--format", "terraform"]));
    for action in template.lines().filter_map(|line| line.trim().strip_prefix("- dynamodb:")) {
        assert!(terraform.contains(&format!("\"dynamodb:{action}\"")), "{action}");
    }
    let python =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dynamodb/python/bin/python");
    if !python.exists() {
        return println!("SKIPPED: moto is not installed; scripts/test installs it");
    }
    let output = Command::new(python).args(["-c", STACK, &template]).output().unwrap();
    let table: Value = serde_json::from_str(&told(&output)).unwrap();
    let keys = |of: &Value| format!("{}", of["KeySchema"]).replace(' ', "");
    let is_keyed = |of: &Value, partition: &str, sort: &str| {
        let keys = keys(of);
        assert!(keys.contains(partition) && keys.contains(sort), "{keys}");
    };
    is_keyed(
        &table["table"],
        r#""AttributeName":"pk","KeyType":"HASH""#,
        r#""AttributeName":"sk","KeyType":"RANGE""#,
    );
    let index = &table["table"]["GlobalSecondaryIndexes"][0];
    assert_eq!(index["IndexName"], "pending");
    is_keyed(
        index,
        r#""AttributeName":"shard_key","KeyType":"HASH""#,
        r#""AttributeName":"pk","KeyType":"RANGE""#,
    );
    // moto makes no time to live from a template.
    assert!(
        template.contains("TimeToLiveSpecification: { AttributeName: expires_s, Enabled: true }")
    );
}

const STACK: &str = r#"
import json, os, sys
os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1")
import boto3
from moto import mock_aws
with mock_aws():
    boto3.client("cloudformation").create_stack(StackName="s", TemplateBody=sys.argv[1])
    db = boto3.client("dynamodb")
    table = db.describe_table(TableName="keys")["Table"]
    print(json.dumps({"table": table}, default=str))
"#;
