//! Answers that are too large for one item.

use onlyonce::record::{Kept, KeyText, NotKept, Record, State, Token};
use onlyonce::store::{Draft, Fault, Guard, Maintain, Next, Store, StoreError, Swap};
use servers::WireFault;

use crate::lab::{Lab, completed, done, draft, won, write};

/// Three parts.
const BODY_BYTES: usize = 900_000;

fn large(seed: u8) -> Vec<u8> {
    (0..BODY_BYTES).map(|at| (at % 251) as u8 ^ seed).collect()
}

fn body(record: &Record) -> &[u8] {
    match &record.response().expect("it is completed").body {
        Kept::Bytes { body, .. } => body,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_large_answer_is_replayed_byte_for_byte_by_another_node() {
    let Some(lab) = Lab::start("").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    done(&lab.store, &draft, completed(large(1))).await;
    println!("{:?}", lab.wire.counts());
    let other = lab.other_node().await;
    let seen = other.claim(draft.clone()).await.unwrap();
    assert_eq!(body(seen.record.as_ref().unwrap()), large(1));
    // A repeated settle finds that it is done.
    done(&lab.store, &draft, completed(large(1))).await;
    assert!(matches!(write(&lab.store, &draft, completed(large(2))).await, Ok(Swap::Stale(_))));
    assert_eq!(body(&other.load(draft.id).await.unwrap().record.unwrap()), large(1));
}

#[tokio::test]
async fn nobody_sees_half_an_answer_wherever_its_settle_is_cut() {
    let Some(lab) = Lab::start("").await else { return };
    let other = lab.other_node().await;
    // Two of the three parts, the third, and the completion itself.
    for (number, passes) in [(1, 2), (2, 3)] {
        for fault in [WireFault::CallLost, WireFault::ReplyLost] {
            let draft = draft(number * 10 + u32::from(fault == WireFault::ReplyLost));
            won(&lab.store, &draft).await;
            let mut writes = 0;
            lab.wire.change(move |action| {
                writes += usize::from(["PutItem", "UpdateItem"].contains(&action));
                if writes > passes { fault } else { WireFault::None }
            });
            let settle = write(&lab.store, &draft, completed(large(1))).await;
            assert!(matches!(settle, Err(Fault::Unsure(_))), "{settle:?}");
            let record = other.load(draft.id).await.unwrap().record.unwrap();
            match record.state {
                State::Running { .. } => {}
                State::Completed { .. } => assert_eq!(body(&record), large(1)),
                state => panic!("{state:?}"),
            }
            lab.wire.change(|_| WireFault::None);
            done(&lab.store, &draft, completed(large(1))).await;
            assert_eq!(body(&other.load(draft.id).await.unwrap().record.unwrap()), large(1));
        }
    }
}

#[tokio::test]
async fn a_missing_part_is_an_error_and_never_a_shorter_answer() {
    let Some(lab) = Lab::start("").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    done(&lab.store, &draft, completed(large(1))).await;
    let keys = part_keys(&lab);
    assert_eq!(keys.len(), 3, "{keys:?}");
    let delete = format!(r#"{{"TableName":"keys","Key":{}}}"#, keys[1]);
    assert_eq!(lab.server.call("DeleteItem", &delete).0, 200);
    let seen = lab.store.load(draft.id).await;
    assert!(matches!(seen, Err(Fault::NotDone(StoreError::Unreadable(_)))), "{seen:?}");
}

#[tokio::test]
async fn an_erased_answer_leaves_no_part_behind() {
    let Some(lab) = Lab::start("").await else { return };
    let (draft, record, erased) = erasable(&lab).await;
    let swap = erase(&lab, &record, &erased).await;
    assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
    assert_eq!(lab.store.load(draft.id).await.unwrap().record, Some(erased));
    assert_eq!(part_keys(&lab), Vec::<String>::new());
}

/// Whoever is told that it was erased can rely on it.
#[tokio::test]
async fn an_answer_whose_parts_cannot_be_deleted_is_not_told_to_be_erased() {
    let Some(lab) = Lab::start("").await else { return };
    let (_, record, erased) = erasable(&lab).await;
    for fault in [WireFault::CallLost, WireFault::Throttled] {
        lab.fail_next("DeleteItem", fault);
        let swap = erase(&lab, &record, &erased).await;
        assert!(matches!(swap, Err(Fault::Unsure(_))), "{swap:?}");
        assert_ne!(part_keys(&lab), Vec::<String>::new());
    }
    let swap = erase(&lab, &record, &erased).await;
    assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
    assert_eq!(part_keys(&lab), Vec::<String>::new());
}

/// The first erase could not delete the parts, and the operator erases again: that is another write of a new token.
#[tokio::test]
async fn an_answer_that_is_erased_a_second_time_leaves_no_part_behind() {
    let Some(lab) = Lab::start("").await else { return };
    let (_, record, erased) = erasable(&lab).await;
    lab.fail_next("DeleteItem", WireFault::Throttled);
    assert!(erase(&lab, &record, &erased).await.is_err());
    assert_ne!(part_keys(&lab), Vec::<String>::new());
    let again = Record { token: Token::random(), ..erased.clone() };
    let swap = erase(&lab, &erased, &again).await;
    assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
    assert_eq!(part_keys(&lab), Vec::<String>::new());
}

/// `store_down = "pass"` runs what comes while the store is away. It is not away if it has just shown the record.
#[tokio::test]
async fn a_record_whose_parts_cannot_be_read_is_not_a_store_that_is_away() {
    let Some(lab) = Lab::start("").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    done(&lab.store, &draft, completed(large(1))).await;
    // One node knows that there is a record, and reads it first; to the other one it is new.
    for store in [lab.store.clone(), crate::emulator::open(&lab.wire.url(), "").await] {
        let mut gets = 0;
        lab.wire.change(move |action| {
            gets += usize::from(action == "GetItem");
            match action == "GetItem" && gets > 1 {
                true => WireFault::Expired,
                false => WireFault::None,
            }
        });
        let late = Draft { token: Token::random(), ..draft.clone() };
        let claim = store.claim(late).await;
        lab.wire.change(|_| WireFault::None);
        assert!(matches!(claim, Err(Fault::NotDone(StoreError::Busy))), "{claim:?}");
    }
}

/// A completed operation with an answer in parts; its record, and the same without the answer.
async fn erasable(lab: &Lab) -> (Draft, Record, Record) {
    let draft = draft(1);
    won(&lab.store, &draft).await;
    done(&lab.store, &draft, completed(large(1))).await;
    let record = lab.store.load(draft.id).await.unwrap().record.unwrap();
    let mut erased =
        Record { token: Token::random(), count: 1, key: KeyText::erased(), ..record.clone() };
    if let State::Completed { response, .. } = &mut erased.state {
        *response = std::sync::Arc::new(response.without_body(NotKept::Erased));
    }
    (draft, record, erased)
}

async fn erase(lab: &Lab, record: &Record, erased: &Record) -> Result<Swap, Fault> {
    let to = Next::Replaced(Box::new(erased.clone()));
    lab.store.swap(draft(1).id, Guard::Unchanged(record.revision()), to).await
}

/// Parts were written, and the completion that was to name them never was.
#[tokio::test]
async fn parts_that_no_record_names_are_swept_where_the_store_sweeps() {
    let Some(lab) = Lab::start("&sweep=scan").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    lab.fail_next("UpdateItem", WireFault::Throttled);
    let settle = write(&lab.store, &draft, completed(large(1))).await;
    assert!(matches!(settle, Err(Fault::NotDone(_))), "{settle:?}");
    assert_eq!(part_keys(&lab).len(), 3);
    let now = lab.store.load(draft.id).await.unwrap().now;
    lab.store.sweep(now, 100).await.unwrap();
    assert_eq!(part_keys(&lab).len(), 3, "they may yet be named");
    lab.store.sweep(now.plus_ms(3 * draft.ttl_ms), 100).await.unwrap();
    assert_eq!(part_keys(&lab), Vec::<String>::new());
    assert!(lab.store.load(draft.id).await.unwrap().record.is_some(), "it runs");
}

/// DynamoDB deletes items that are over in any order: the parts may go before the record.
#[tokio::test]
async fn a_record_that_is_over_and_has_lost_its_parts_is_read_without_its_answer() {
    let Some(lab) = Lab::start("").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    done(&lab.store, &draft, completed(large(1))).await;
    let delete = format!(r#"{{"TableName":"keys","Key":{}}}"#, part_keys(&lab)[1]);
    assert_eq!(lab.server.call("DeleteItem", &delete).0, 200);
    assert!(lab.store.load(draft.id).await.is_err());
    let record = record_key(&lab);
    let over = format!(
        r#"{{"TableName":"keys","Key":{record},"UpdateExpression":"SET expires_s = :long_ago",
            "ExpressionAttributeValues":{{":long_ago":{{"N":"1000"}}}}}}"#
    );
    assert_eq!(lab.server.call("UpdateItem", &over).0, 200);
    let record = lab.store.load(draft.id).await.unwrap().record.unwrap();
    assert!(matches!(record.response().unwrap().body, Kept::No(_)), "{record:?}");
    let guard = Guard::Unchanged(record.revision());
    let taken = lab.store.swap(draft.id, guard, Next::Absent).await;
    assert!(matches!(taken, Ok(Swap::Done(_))), "{taken:?}");
}

#[tokio::test]
async fn without_parts_a_large_answer_is_refused_for_its_content() {
    let Some(lab) = Lab::start("&parts=off").await else { return };
    let draft = draft(1);
    won(&lab.store, &draft).await;
    let limit = lab.store.limits().body_bytes_max;
    let settle = write(&lab.store, &draft, completed(large(1))).await;
    assert!(matches!(settle, Err(Fault::NotDone(StoreError::Refused(_)))), "{settle:?}");
    done(&lab.store, &draft, completed(vec![7; limit])).await;
    assert_eq!(body(&lab.store.load(draft.id).await.unwrap().record.unwrap()).len(), limit);
}

/// The keys of all parts in the table, in JSON.
fn part_keys(lab: &Lab) -> Vec<String> {
    keys(lab, "oo/part/")
}

/// The key of the only record.
fn record_key(lab: &Lab) -> String {
    keys(lab, "oo:").pop().unwrap()
}

fn keys(lab: &Lab, prefix: &str) -> Vec<String> {
    let scan = format!(
        r#"{{"TableName":"keys","ProjectionExpression":"pk, sk",
        "FilterExpression":"begins_with(pk, :parts)","ExpressionAttributeValues":{{":parts":{{"S":"{prefix}"}}}}}}"#
    );
    let (status, told) = lab.server.call("Scan", &scan);
    assert_eq!(status, 200, "{told}");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    told["Items"].as_array().unwrap().iter().map(ToString::to_string).collect()
}
