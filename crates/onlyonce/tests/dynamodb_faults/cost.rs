//! What operations cost in capacity units, as the emulator counts them.

use std::time::Duration;

use onlyonce::Once;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::store::Store;
use tokio::time::sleep;

use crate::emulator::open;
use crate::lab::{Lab, completed, done, draft, won};

#[tokio::test]
async fn a_fresh_operation_costs_two_writes_of_its_item_and_a_replay_one_read() {
    let Some(lab) = Lab::start("").await else { return };
    for (number, body, settle_units, replay_units) in
        [(1, 300, 1.0, 1.0), (2, 3_000, 4.0, 1.0), (3, 9_000, 10.0, 3.0)]
    {
        lab.wire.forget();
        let (first, second) = (draft(number), draft(number));
        won(&lab.store, &first).await;
        done(&lab.store, &first, completed(vec![b'x'; body])).await;
        let fresh = lab.wire.counts();
        println!("fresh, {body} bytes: {fresh:?}");
        assert_eq!(fresh.calls.values().sum::<usize>(), 2, "{:?}", fresh.calls);
        assert_eq!(
            (fresh.table_writes, fresh.index_writes, fresh.reads),
            (1.0 + settle_units, 2.0, 0.0)
        );
        lab.wire.forget();
        assert!(!lab.store.claim(second).await.unwrap().mine);
        let replay = lab.wire.counts();
        println!("replay, {body} bytes: {replay:?}");
        assert_eq!((replay.table_writes, replay.reads), (0.0, replay_units));
        assert_eq!(replay.calls.values().sum::<usize>(), 1, "{:?}", replay.calls);
    }
}

#[tokio::test]
async fn a_renewal_writes_no_entry_of_the_index() {
    let Some(lab) = Lab::start("").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    lab.wire.forget();
    lab.store.renew(&[(draft.id, draft.token)], draft.lease).await.unwrap();
    let counts = lab.wire.counts();
    assert_eq!((counts.table_writes, counts.index_writes), (1.0, 0.0), "{counts:?}");
}

/// A claim by a node that has not seen the key is one call too, and a write unit for each kilobyte that is there.
#[tokio::test]
async fn a_replay_on_another_node_is_one_call() {
    let Some(lab) = Lab::start("").await else { return };
    let other = lab.other_node().await;
    won(&other, &draft(1)).await;
    lab.wire.forget();
    let seen = lab.store.claim(draft(1)).await.unwrap();
    assert!(!seen.mine && seen.record.is_some());
    assert_eq!(
        lab.wire.counts().calls.into_iter().collect::<Vec<_>>(),
        [("PutItem".to_owned(), 1)]
    );
}

/// The lease is 30 s: a look every 10 s, and nothing between.
#[tokio::test]
async fn an_idle_node_asks_nothing_between_two_looks_of_the_reaper() {
    let Some(lab) = Lab::start("").await else { return };
    let once = Once::new(open(&lab.wire.url(), "").await);
    let start = SystemClock.boot();
    // Until the first look is over: 16 shards of the index.
    while lab.wire.counts().calls.get("Query").copied().unwrap_or(0) < 16 {
        assert!(SystemClock.boot() - start < Duration::from_secs(20), "{:?}", lab.wire.counts());
        sleep(Duration::from_millis(20)).await;
    }
    lab.wire.forget();
    sleep(Duration::from_secs(3)).await;
    let counts = lab.wire.counts();
    assert!(counts.calls.is_empty(), "{:?}", counts.calls);
    drop(once);
}

/// The figures that `onlyonce plan` goes by: `commands/plan/measured.rs` and `commands/plan/dynamodb.rs` of the binary.
#[tokio::test]
async fn a_record_takes_what_is_planned() {
    let Some(lab) = Lab::start("").await else { return };
    let drafts: Vec<_> = (1..=RECORDS).map(draft).collect();
    for draft in &drafts {
        won(&lab.store, draft).await;
    }
    is_near(bytes_per_record(&lab), 390.0);
    for draft in &drafts {
        done(&lab.store, draft, completed(vec![b'x'; 300])).await;
    }
    is_near(bytes_per_record(&lab), 460.0 + 300.0);
}

/// By what a consistent scan of the table costs: a unit for each 4 KiB.
fn bytes_per_record(lab: &Lab) -> f64 {
    let scan = r#"{"TableName":"keys","ConsistentRead":true,"ReturnConsumedCapacity":"TOTAL"}"#;
    let (status, told) = lab.server.call("Scan", scan);
    assert_eq!(status, 200, "{told}");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["Count"], RECORDS);
    told["ConsumedCapacity"]["CapacityUnits"].as_f64().unwrap() * 4096.0 / f64::from(RECORDS)
}

#[track_caller]
fn is_near(measured: f64, planned: f64) {
    println!("{measured:.0} bytes a record, {planned} planned");
    assert!((0.8..=1.2).contains(&(planned / measured)), "{measured:.0} and not {planned}");
}

const RECORDS: u32 = 200;
