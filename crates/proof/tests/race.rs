//! 200 requests with one key at once, over real sockets.

use std::collections::HashSet;

use proof::client::Connection;
use proof::ledger::Ledger;
use proof::oracle::Oracle;
use proof::tier::tiered;
use tokio::task::JoinSet;

const CALLERS: usize = 200;

// R55; threat J15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_requests_with_one_key_at_once_one_is_executed() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::start(env!("CARGO_BIN_EXE_ledger"), folder.path()).unwrap();
    let mut connections = Vec::new();
    for _ in 0..CALLERS {
        connections.push(Connection::open(ledger.address).await.unwrap());
    }
    let rounds = tiered(100);
    let (mut replays, mut refusals) = (0, 0);
    for round in 0..rounds {
        let key = format!("round-{round:04}-of-the-race");
        let mut senders = JoinSet::new();
        for mut connection in connections.drain(..) {
            let key = key.clone();
            senders.spawn(async move {
                let answer = connection.post("/charges", &key, "{\"amount\":1}").await.unwrap();
                (connection, answer)
            });
        }
        let mut bodies = HashSet::new();
        while let Some(sent) = senders.join_next().await {
            let (connection, answer) = sent.unwrap();
            connections.push(connection);
            match (answer.status.as_u16(), answer.problem().as_deref()) {
                (201, None) => {
                    replays += usize::from(answer.is_replay());
                    bodies.insert(answer.body);
                }
                (409, Some("idempotency_in_progress")) => refusals += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bodies.len(), 1, "one answer in round {round}");
    }
    let executions = Oracle::executions(&folder.path().join("oracle")).unwrap();
    assert_eq!(executions.len(), rounds);
    assert!(executions.values().all(|count| *count == 1), "{executions:?}");
    assert!(refusals > 0, "nobody met the first while it ran");
    println!(
        "{rounds} rounds of {CALLERS}: {rounds} executions, {refusals} refusals, {replays} replays"
    );
}
