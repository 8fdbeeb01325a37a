//! The trail in DynamoDB: transactions that meet, are lost, or die with the server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce::EventKind::{Claimed, Executed, Expired, Replayed};
use onlyonce::Outcome;
use onlyonce::clock::StoreTime;
use onlyonce::record::{SettledBy, StateKind, StateSet};
use onlyonce::store::audit::{Appended, AuditOptions, EntryQuery, Head, Note, Trail, verify};
use onlyonce::store::dynamodb::DynamoStore;
use onlyonce::store::{Draft, Fault, Guard, Inspect, Maintain, Next, Scan, Swap};
use serde_json::{Value, json};
use servers::{DynamoDb, DynamoWire, WireFault};
use tokio::task::JoinHandle;

use super::crash::{agree, draft, note, work};
use super::emulator;
use super::lab::{Lab, Later, all, answer, faults};
use super::tampering::{Random, fill, stop};
use super::{life, retention};

/// `None` where the emulator is not installed.
async fn server() -> Option<DynamoDb> {
    let server = DynamoDb::start()?;
    emulator::make(&server.url()).await;
    Some(server)
}

async fn open(url: &str) -> DynamoStore {
    emulator::open(url, "").await.with_audit(AuditOptions::default()).unwrap()
}

fn lab(store: DynamoStore) -> Lab {
    Lab::on(store, Later::default(), tempfile::tempdir().unwrap())
}

#[tokio::test]
async fn every_change_of_a_record_is_told_once_by_dynamodb() {
    let Some(server) = server().await else { return };
    life::tells_every_change_once(&lab(open(&server.url()).await)).await;
}

#[tokio::test]
async fn the_trail_outlives_the_key_in_dynamodb() {
    let Some(server) = server().await else { return };
    let sweeps = emulator::open(&server.url(), "&sweep=scan").await;
    let sweeps = sweeps.with_audit(AuditOptions::default()).unwrap();
    let lab = lab(sweeps.clone());
    assert_eq!(lab.run("order-8", "ch_8").await, Outcome::Fresh("ch_8".to_owned()));
    assert_eq!(lab.run("order-8", "again").await, Outcome::Replayed("ch_8".to_owned()));
    lab.entries("order-8", 3).await;
    let swept = sweeps.sweep(StoreTime::from_ms(i64::MAX / 2), 100).await.unwrap();
    assert_eq!((swept.deleted, swept.more), (1, false));
    let entries = lab.entries("order-8", 4).await;
    let kinds: Vec<_> = entries.iter().map(|entry| entry.note.kind).collect();
    for kind in [Claimed, Executed, Replayed, Expired] {
        assert_eq!(kinds.iter().filter(|told| **told == kind).count(), 1, "{kinds:?}");
    }
    lab.whole().await;
}

#[tokio::test]
async fn old_entries_go_and_the_rest_is_whole_in_dynamodb() {
    let Some(one) = server().await else { return };
    retention::forgets_the_oldest_first(open(&one.url()).await.audit().unwrap()).await;
    let Some(two) = server().await else { return };
    retention::adds_a_repeated_batch_once(open(&two.url()).await.audit().unwrap()).await;
}

#[tokio::test]
async fn nodes_on_dynamodb_forget_each_others_old_entries() {
    let Some(server) = server().await else { return };
    let (one, two) = (open(&server.url()).await, open(&server.url()).await);
    one.audit().unwrap().append(retention::batch(1, 100, 130)).await.unwrap();
    two.audit().unwrap().append(retention::batch(2, 100, 130)).await.unwrap();
    one.close().await;
    let heads = two.heads().await.unwrap();
    assert_eq!(heads.len(), 2);
    assert_eq!((all(&two).await.len(), faults(&two).await), (260, 0));
    let audit = two.audit().unwrap();
    assert!(audit.prune(StoreTime::from_ms(200), 120).await.unwrap());
    assert_eq!((all(&two).await.len(), faults(&two).await), (20, 0));
    assert!(!audit.prune(StoreTime::from_ms(200), 120).await.unwrap());
    assert_eq!((all(&two).await.len(), faults(&two).await), (0, 0));
    assert!(verify(&two, &heads).await.unwrap().is_whole(), "what was kept elsewhere still fits");
}

/// A batch takes several transactions. One of them is lost with its answer, and the batch is repeated.
#[tokio::test]
async fn a_batch_goes_on_where_a_lost_answer_has_stopped_it() {
    let Some(server) = server().await else { return };
    for (number, lost) in [WireFault::ReplyLost, WireFault::CallLost].into_iter().enumerate() {
        let mut seen = 0;
        let wire = DynamoWire::before(&server, move |action| {
            seen += usize::from(action == "TransactWriteItems");
            if action == "TransactWriteItems" && seen == 2 { lost } else { WireFault::None }
        });
        let store = open(&wire.url()).await;
        let before = all(&store).await.len();
        let notes = (0..250).map(|at| (StoreTime::from_ms(at), Note::dropped(at as u64))).collect();
        let batch = Arc::new(Appended { batch: [number as u8 + 1; 16], notes });
        let audit = store.audit().unwrap();
        assert!(matches!(audit.append(batch.clone()).await, Err(Fault::Unsure(_))));
        audit.append(batch.clone()).await.unwrap();
        audit.append(batch).await.unwrap();
        assert_eq!((all(&store).await.len() - before, faults(&store).await), (250, 0), "{lost:?}");
    }
}

/// The transaction is made, and its answer never comes: the repeated call finds its work done, and adds no second entry.
#[tokio::test]
async fn a_transaction_whose_answer_is_lost_is_told_once() {
    let Some(server) = server().await else { return };
    let wire = DynamoWire::before(&server, |_| WireFault::None);
    let store = open(&wire.url()).await;
    let audit = store.audit().unwrap();
    let faults_of_calls = [WireFault::ReplyLost, WireFault::FailedAfter, WireFault::CallLost];
    for fault in faults_of_calls {
        let first = draft();
        fail_next(&wire, fault);
        let lost = audit.claim(first.clone(), note(Claimed, first.id)).await;
        assert!(matches!(lost, Err(Fault::Unsure(_))), "{fault:?}: {lost:?}");
        assert!(audit.claim(first.clone(), note(Claimed, first.id)).await.unwrap().mine);
        fail_next(&wire, fault);
        let lost = settle(&store, &first).await;
        assert!(matches!(lost, Err(Fault::Unsure(_))), "{fault:?}: {lost:?}");
        assert!(matches!(settle(&store, &first).await, Ok(Swap::Done(_))));
    }
    let entries = all(&store).await;
    assert_eq!(entries.len(), 6, "{entries:#?}");
    assert!(agree(&store).await == 6);
}

fn fail_next(wire: &DynamoWire, fault: WireFault) {
    let mut is_due = true;
    wire.change(move |action| {
        match action == "TransactWriteItems" && std::mem::take(&mut is_due) {
            true => fault,
            false => WireFault::None,
        }
    });
}

async fn settle(store: &DynamoStore, draft: &Draft) -> Result<Swap, Fault> {
    let (settled_by, response) = (SettledBy::Owner, answer("\"done\""));
    let to = Next::Completed { settled_by, response, token: None };
    let guard = Guard::Owner { token: draft.token, states: StateSet::of(&[StateKind::Running]) };
    store.audit().unwrap().swap(draft.id, guard, to, note(Executed, draft.id)).await
}

/// Of claims that race on two nodes one wins each key, and is told; the others find its record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_race_are_won_and_told_once() {
    let Some(server) = server().await else { return };
    let nodes = [open(&server.url()).await, open(&server.url()).await];
    for _ in 0..10 {
        let id = draft().id;
        let claims = (0..16).map(|number: usize| {
            let (store, mine) = (nodes[number % 2].clone(), Draft { id, ..draft() });
            async move { store.audit().unwrap().claim(mine, note(Claimed, id)).await.unwrap().mine }
        });
        let won = join_all(claims).await.into_iter().filter(|mine| *mine).count();
        assert_eq!(won, 1);
    }
    assert_eq!(all(&nodes[0]).await.len(), 10);
    assert_eq!(faults(&nodes[0]).await, 0);
}

/// The server is killed under load: no change without its entry, no entry without its change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_leaves_records_and_entries_that_agree() {
    let Some(mut server) = server().await else { return };
    let store = open(&server.url()).await;
    for _ in 0..3 {
        let before = told(&store).await;
        let tasks: Vec<_> = (0..16).map(|_| tokio::spawn(work(store.clone()))).collect();
        while told(&store).await < before + 50 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.kill();
        server.start_again();
        tasks.iter().for_each(JoinHandle::abort);
    }
    store.close().await;
    assert!(agree(&open(&server.url()).await).await > 100);
}

/// How many entries there are.
async fn told(store: &DynamoStore) -> u64 {
    store.heads().await.unwrap().iter().map(|head| head.last.sequence).sum()
}

#[tokio::test]
async fn a_page_of_a_key_and_of_an_operation_is_found_by_its_index() {
    let Some(server) = server().await else { return };
    let lab = lab(open(&server.url()).await);
    fill(&lab).await;
    let operations = lab.once.operations();
    let every = operations.audit(EntryQuery::all(1_000)).await.unwrap().entries;
    let (mut query, mut paged) = (EntryQuery::all(3), Vec::new());
    loop {
        let page = operations.audit(query).await.unwrap();
        paged.extend(page.entries);
        query.after = page.next.map(|next| next.to_string().parse().unwrap());
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(paged, every);
    let id = every[0].note.id;
    let of_id = operations.audit(EntryQuery { id, ..EntryQuery::all(1_000) }).await.unwrap();
    assert_eq!(of_id.entries.len(), every.iter().filter(|entry| entry.note.id == id).count());
    let (since, until) = (Some(every[2].at), Some(every[every.len() - 2].at));
    let between = EntryQuery { since, until, ..EntryQuery::all(1_000) };
    let between = operations.audit(between).await.unwrap().entries;
    let is_between = |at: StoreTime| since.unwrap() <= at && at < until.unwrap();
    assert_eq!(between.len(), every.iter().filter(|entry| is_between(entry.at)).count());
    let nothing = EntryQuery { since: until, until: since, ..EntryQuery::all(1_000) };
    assert!(operations.audit(nothing).await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn every_tampering_with_a_table_is_told() {
    let Some(server) = server().await else { return };
    let lab = lab(open(&server.url()).await);
    fill(&lab).await;
    lab.whole().await;
    let mut heads = lab.once.operations().audit_heads().await.unwrap();
    heads.sort_by_key(|head| head.last.sequence);
    let longest = heads.pop().unwrap();
    stop(lab.once).await;
    let store = open(&server.url()).await;
    let (chain, mut random) = (Rows { server: &server, head: longest }, Random(0x5EED));
    let original = chain.read();
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    for number in 0..if is_full { 200 } else { 20 } {
        let told = chain.tamper(&mut random, &original);
        assert!(faults(&store).await > 0, "tampering {number} was not told: {told}");
        chain.restore(&original);
        assert_eq!(faults(&store).await, 0, "the trail is whole again");
    }
}

/// Entries of a chain that nobody has listed, a chain that is listed no more, and the highest number there is.
#[tokio::test]
async fn a_chain_that_was_added_or_is_not_listed_is_told() {
    let Some(server) = server().await else { return };
    let store = open(&server.url()).await;
    store.audit().unwrap().append(retention::batch(1, 100, 5)).await.unwrap();
    let chain = Rows { server: &server, head: store.heads().await.unwrap()[0] };
    let entry = chain.read()[0].clone();
    let mut forged = entry.clone();
    forged["pk"]["S"] = format!("oo/chain/{}-0", "ab".repeat(16)).into();
    chain.put(&forged);
    assert!(faults(&store).await > 0, "a chain without a head");
    chain.delete(&forged);
    assert_eq!(faults(&store).await, 0);
    let listed =
        json!({ "pk": { "S": "oo/chains" }, "sk": { "S": chain.head.writer.to_string() } });
    chain.delete(&listed);
    assert_eq!(faults(&store).await, 0, "it is found by its entries");
    chain.delete(&entry);
    assert!(faults(&store).await > 0, "also when it is not listed");
    chain.put(&entry);
    let last = numbered(&entry, &json!({ "S": u64::MAX.to_string() }));
    chain.put(&last);
    assert!(faults(&store).await > 0, "the highest number");
}

/// Between two records of a scan there may be many entries.
#[tokio::test]
async fn records_are_listed_beside_a_long_trail() {
    let Some(server) = server().await else { return };
    let store = open(&server.url()).await;
    let audit = store.audit().unwrap();
    for _ in 0..30 {
        let draft = draft();
        audit.claim(draft.clone(), note(Claimed, draft.id)).await.unwrap();
        assert!(matches!(settle(&store, &draft).await, Ok(Swap::Done(_))));
    }
    for number in 1..=8 {
        audit.append(retention::batch(number, 100, 500)).await.unwrap();
    }
    let states = StateSet::of(&[StateKind::Completed]);
    let (mut scan, mut found) = (Scan { states, after: None, limit: 7 }, Vec::new());
    loop {
        let page = store.scan(scan.clone()).await.unwrap();
        assert!(page.records.len() <= 7);
        found.extend(page.records.into_iter().map(|(id, _)| id));
        scan.after = page.next;
        if scan.after.is_none() {
            break;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 30);
}

/// A table of an operator who keeps no trail needs no index for it.
#[tokio::test]
async fn a_table_without_the_indexes_of_a_trail_keeps_none() {
    let Some(server) = DynamoDb::start() else { return };
    let text = |name: &str| json!({ "AttributeName": name, "AttributeType": "S" });
    let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
    let table = json!({ "TableName": "keys", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [text("pk"), text("sk"), text("shard_key")],
        "KeySchema": [key("pk", "HASH"), key("sk", "RANGE")],
        "GlobalSecondaryIndexes": [{ "IndexName": "pending", "Projection": { "ProjectionType": "KEYS_ONLY" },
            "KeySchema": [key("shard_key", "HASH"), key("pk", "RANGE")] }] });
    assert_eq!(server.call("CreateTable", &table.to_string()).0, 200);
    let store = emulator::open(&server.url(), "").await;
    let refused = store.with_audit(AuditOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("trail_by_operation"), "{refused}");
}

/// The items of one chain, for somebody who can write the table.
struct Rows<'a> {
    server: &'a DynamoDb,
    head: Head,
}

impl Rows<'_> {
    fn call(&self, action: &str, body: &Value) -> Value {
        let (status, told) = self.server.call(action, &body.to_string());
        assert_eq!(status, 200, "{action} {body}: {told}");
        serde_json::from_str(&told).unwrap()
    }

    /// All items, the head last.
    fn read(&self) -> Vec<Value> {
        let chain = format!("oo/chain/{}", self.head.writer);
        let query = json!({ "TableName": "keys", "KeyConditionExpression": "pk = :pk", "ConsistentRead": true,
            "ExpressionAttributeValues": { ":pk": { "S": chain } } });
        self.call("Query", &query)["Items"].as_array().unwrap().clone()
    }

    fn put(&self, item: &Value) {
        self.call("PutItem", &json!({ "TableName": "keys", "Item": item }));
    }

    fn delete(&self, item: &Value) {
        let key = json!({ "pk": item["pk"], "sk": item["sk"] });
        self.call("DeleteItem", &json!({ "TableName": "keys", "Key": key }));
    }

    fn restore(&self, original: &[Value]) {
        let found = self.read();
        found.iter().filter(|item| !original.contains(item)).for_each(|item| self.delete(item));
        original.iter().filter(|item| !found.contains(item)).for_each(|item| self.put(item));
    }

    fn tamper(&self, random: &mut Random, original: &[Value]) -> String {
        let (head, entries) = original.split_last().unwrap();
        let mut at = || random.below(entries.len() as u64) as usize;
        let (row, other) = (&entries[at()], &entries[at()]);
        match random.below(6) {
            0..3 => self.change(random, row),
            3 => {
                self.delete(row);
                format!("deleted {row}")
            }
            4 if row != other => {
                self.put(&numbered(row, &other["sk"]));
                format!("{row} in the place of {other}")
            }
            4 => self.change(random, head),
            _ => {
                self.put(&numbered(row, &json!({ "S": format!("{:020}", entries.len() + 1) })));
                format!("{row} once more, at the end")
            }
        }
    }

    /// Changes, removes or adds a value of an item.
    fn change(&self, random: &mut Random, item: &Value) -> String {
        let mut changed = item.clone();
        let values = changed.as_object_mut().unwrap();
        let is_unseen = |name: &str| ["pk", "sk", "batch_id", "batch_notes"].contains(&name);
        let mut names: Vec<_> = values.keys().filter(|name| !is_unseen(name)).cloned().collect();
        names.sort();
        let name = names[random.below(names.len() as u64) as usize].clone();
        let value = values.get_mut(&name).unwrap();
        *value = match (value["N"].as_str(), value["S"].as_str()) {
            (Some(number), _) => json!({ "N": (number.parse::<i64>().unwrap() + 1).to_string() }),
            (_, Some(text)) => json!({ "S": format!("{text}x") }),
            _ => json!({ "B": "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=" }),
        };
        self.put(&changed);
        format!("{name} of {item}")
    }
}

fn numbered(item: &Value, sort: &Value) -> Value {
    let mut item = item.clone();
    item["sk"] = sort.clone();
    item
}

/// What docs/audit.md says that a trail costs.
#[tokio::test]
async fn a_change_with_its_entry_costs_what_is_documented() {
    let Some(server) = server().await else { return };
    let wire = DynamoWire::before(&server, |_| WireFault::None);
    let store = open(&wire.url()).await;
    // The first change lists its chain.
    let first = draft();
    store.audit().unwrap().claim(first.clone(), note(Claimed, first.id)).await.unwrap();
    let mut id = *draft().id.as_bytes();
    id[15] = first.id.as_bytes()[15];
    let second = Draft { id: onlyonce::scope::OperationId::from_bytes(id), ..draft() };
    wire.forget();
    store.audit().unwrap().claim(second.clone(), note(Claimed, second.id)).await.unwrap();
    let claim = wire.counts();
    assert_eq!((claim.table_writes, claim.index_writes, claim.reads), (6.0, 3.0, 0.0), "{claim:?}");
    wire.forget();
    assert!(matches!(settle(&store, &second).await, Ok(Swap::Done(_))));
    let settle = wire.counts();
    assert_eq!((settle.table_writes, settle.index_writes), (6.0, 3.0), "{settle:?}");
    assert_eq!(settle.reads, 1.0, "{settle:?}");
}
