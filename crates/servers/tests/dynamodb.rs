//! Conditional writes of dynoxide are atomic. Where they are not, nothing that is tested with it is proved. (Those of moto are
//! not: of 60 items that 16 threads updated, 10 had several winners. It is asked one call at a time, and proves no race.)

use std::sync::Barrier;
use std::thread;

use servers::DynamoDb;

/// First puts of a key that is absent, then updates of what the winner has put. A loser is told who won: a claim is one round
/// trip.
#[test]
fn of_racing_conditional_writes_in_dynoxide_one_wins() {
    let Some(server) = DynamoDb::start() else {
        return;
    };
    make_table(&server);
    for key in 0..KEYS {
        let winner = race(&server, "PutItem", |by| put(key, by));
        race(&server, "UpdateItem", |by| update(key, winner, RACERS + by));
    }
}

#[test]
fn dynoxide_keeps_what_it_answered_when_it_is_killed() {
    let Some(mut server) = DynamoDb::start() else {
        return;
    };
    make_table(&server);
    for key in 0..20 {
        assert_eq!(server.call("PutItem", &put(key, 0)).0, 200);
    }
    server.kill();
    server.start_again();
    for key in 0..20 {
        let asked = format!(
            r#"{{"TableName":"race","Key":{{"pk":{{"S":"{key}"}}}},"ConsistentRead":true}}"#
        );
        assert!(server.call("GetItem", &asked).1.contains(r#""by":{"N":"0"}"#), "{key} is lost");
    }
}

/// All of them at once; returns the one that won.
fn race(server: &DynamoDb, action: &str, write: impl Fn(usize) -> String) -> usize {
    let start = Barrier::new(RACERS);
    let answers: Vec<_> = thread::scope(|scope| {
        let racer = |by| {
            let (write, start) = (write(by), &start);
            scope.spawn(move || {
                start.wait();
                server.call(action, &write)
            })
        };
        let racers: Vec<_> = (0..RACERS).map(racer).collect();
        racers.into_iter().map(|racer| racer.join().expect("a racer ends")).collect()
    });
    let winners: Vec<_> = (0..RACERS).filter(|by| answers[*by].0 == 200).collect();
    let [winner] = winners[..] else {
        panic!("{server:?}: {action} won by {winners:?}");
    };
    for (status, body) in &answers {
        let is_told = body.contains("ConditionalCheckFailed") && body.contains(r#""by""#);
        assert!(*status == 200 || is_told, "{server:?} told a loser {body}");
    }
    winner
}

fn make_table(server: &DynamoDb) {
    let table = r#"{"TableName":"race","BillingMode":"PAY_PER_REQUEST",
        "AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],
        "KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}"#;
    let (status, told) = server.call("CreateTable", table);
    assert_eq!(status, 200, "{told}");
}

fn put(key: usize, by: usize) -> String {
    format!(
        r#"{{"TableName":"race","Item":{{"pk":{{"S":"{key}"}},"by":{{"N":"{by}"}}}},
        "ConditionExpression":"attribute_not_exists(pk)","ReturnValuesOnConditionCheckFailure":"ALL_OLD"}}"#
    )
}

/// If the item was written by `from`, it is now.
fn update(key: usize, from: usize, by: usize) -> String {
    format!(
        r##"{{"TableName":"race","Key":{{"pk":{{"S":"{key}"}}}},"UpdateExpression":"SET #by = :by",
        "ConditionExpression":"#by = :from","ExpressionAttributeNames":{{"#by":"by"}},
        "ExpressionAttributeValues":{{":by":{{"N":"{by}"}},":from":{{"N":"{from}"}}}},
        "ReturnValuesOnConditionCheckFailure":"ALL_OLD"}}"##
    )
}

const KEYS: usize = 40;
const RACERS: usize = 32;
