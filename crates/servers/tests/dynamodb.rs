//! Conditional writes of the emulators are atomic. Where they are not, nothing that is tested with them is proved.

use std::sync::Barrier;
use std::thread;

use servers::{DynamoDb, Emulator};

#[test]
fn of_racing_conditional_puts_in_dynoxide_one_wins() {
    race(Emulator::Dynoxide);
}

#[test]
fn of_racing_conditional_puts_in_moto_one_wins() {
    race(Emulator::Moto);
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

/// The loser is told who won: a claim is one round trip.
fn race(emulator: Emulator) {
    let Some(server) = DynamoDb::start_as(emulator) else {
        return;
    };
    make_table(&server);
    for key in 0..KEYS {
        let start = Barrier::new(RACERS);
        let answers: Vec<_> = thread::scope(|scope| {
            let racer = |by| {
                let (server, start) = (&server, &start);
                scope.spawn(move || {
                    let put = put(key, by);
                    start.wait();
                    server.call("PutItem", &put)
                })
            };
            let racers: Vec<_> = (0..RACERS).map(racer).collect();
            racers.into_iter().map(|racer| racer.join().expect("a racer ends")).collect()
        });
        let winners: Vec<_> = (0..RACERS).filter(|by| answers[*by].0 == 200).collect();
        let [winner] = winners[..] else {
            panic!("{emulator:?}, key {key}: won by {winners:?}");
        };
        let told = format!(r#""by":{{"N":"{winner}"}}"#);
        for (status, body) in &answers {
            let body = body.replace(' ', "");
            assert!(*status == 200 || body.contains(&told), "{emulator:?} told a loser {body}");
        }
    }
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

const KEYS: usize = 40;
const RACERS: usize = 32;
