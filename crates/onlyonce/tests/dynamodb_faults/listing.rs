//! The index only names candidates.

use onlyonce::record::{StateKind, StateSet};
use onlyonce::store::{Maintain, Scan, Store};

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
