//! The index only names candidates.

use futures_util::future::join_all;
use onlyonce::record::{StateKind, StateSet};
use onlyonce::scope::OperationId;
use onlyonce::store::dynamodb::DynamoStore;
use onlyonce::store::{Fault, Maintain, Next, Scan, Store, StoreError};

use crate::lab::{Lab, completed, done, draft, won};

/// As an index that lags would: the entry is still there, and the record is not running any more.
#[tokio::test]
async fn a_record_that_the_index_still_names_is_read_before_it_is_listed() {
    let Some(lab) = Lab::start("").await else { return };
    let (settled, running) = (draft(1), draft(2));
    won(&lab.store, &settled).await;
    won(&lab.store, &running).await;
    done(&lab.store, &settled, completed("first")).await;
    let digits = format!("{:032x}", u128::from_be_bytes(*settled.id.as_bytes()));
    let (partition, sort) = (format!("oo:{}", &digits[..8]), &digits[8..]);
    let last = settled.id.as_bytes()[15] % 16;
    let lag = format!(
        r#"{{"TableName":"keys","Key":{{"pk":{{"S":"{partition}"}},"sk":{{"S":"{sort}"}}}},
        "UpdateExpression":"SET shard_key = :s","ExpressionAttributeValues":{{":s":{{"S":"oo/{last:02}"}}}}}}"#
    );
    assert_eq!(lab.server.call("UpdateItem", &lag).0, 200);
    let states = StateSet::of(&[StateKind::Running, StateKind::Unknown]);
    let page = lab.store.scan(Scan { states, after: None, limit: 10 }).await.unwrap();
    assert_eq!(page.records.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [running.id]);
    assert!(lab.wire.counts().calls.contains_key("BatchGetItem"));
}

/// A sweep by DynamoDB's own time to live reads nothing.
#[tokio::test]
async fn a_sweep_costs_nothing_where_dynamodb_deletes_by_itself() {
    let Some(lab) = Lab::start("").await else { return };
    won(&lab.store, &draft(1)).await;
    let now = lab.store.load(draft(1).id).await.unwrap().now;
    lab.wire.forget();
    let swept = lab.store.sweep(now.plus_ms(i64::MAX), 10).await.unwrap();
    assert_eq!((swept.deleted, swept.more), (0, false));
    assert!(lab.wire.counts().calls.is_empty());
}

/// The reaper asks for what runs, and the index has what is unknown, too: its look must end in time, however many they are.
#[tokio::test]
async fn a_scan_for_what_runs_passes_many_that_are_unknown_in_several_calls() {
    let Some(lab) = Lab::start("").await else { return };
    let running = draft(0);
    won(&lab.store, &running).await;
    let unknown: Vec<_> = (1..=1_300).map(draft).collect();
    for some in unknown.chunks(100) {
        join_all(some.iter().map(async |draft| {
            won(&lab.store, draft).await;
            done(&lab.store, draft, Next::Unknown { since: None }).await;
        }))
        .await;
    }
    let pages = pages(&lab.store, &[StateKind::Running], 500).await;
    assert!(pages.len() > 1, "one call looked at all of them");
    assert_eq!(pages.concat(), [running.id]);
}

/// A page of answers that are kept in parts is bounded by their bytes, and the next one goes on after it.
#[tokio::test]
async fn large_answers_are_listed_a_few_at_a_time() {
    let Some(lab) = Lab::start("").await else { return };
    let drafts: Vec<_> = (0..5).map(draft).collect();
    for draft in &drafts {
        won(&lab.store, draft).await;
        done(&lab.store, draft, completed(vec![7; 12 << 20])).await;
    }
    let pages = pages(&lab.store, &[StateKind::Completed], 100).await;
    assert!(pages.iter().all(|page| page.len() <= 3), "{pages:?}");
    let mut listed = pages.concat();
    listed.sort();
    let mut ids: Vec<_> = drafts.iter().map(|draft| draft.id).collect();
    ids.sort();
    assert_eq!(listed, ids);
}

/// The ids of all pages.
async fn pages(store: &DynamoStore, states: &[StateKind], limit: usize) -> Vec<Vec<OperationId>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let scan = Scan { states: StateSet::of(states), after, limit };
        let page = match store.scan(scan).await {
            // It reads for a few seconds, and the next call goes on from there.
            Err(Fault::NotDone(StoreError::Busy)) => continue,
            page => page.unwrap(),
        };
        pages.push(page.records.iter().map(|(id, _)| *id).collect());
        after = page.next;
        if after.is_none() {
            return pages;
        }
    }
}
