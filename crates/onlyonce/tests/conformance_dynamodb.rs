//! The store in DynamoDB passes the whole suite, in two emulators: crashes, damage and `kill -9` included.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

#[path = "dynamodb_faults/emulator.rs"]
mod emulator;

use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use emulator::{address, config, make, open};
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::scope::OperationId;
use onlyonce::store::conformance::durability::{check, child, kill_after, write_until_killed};
use onlyonce::store::conformance::{Factory, Fresh, exercise};
use onlyonce::store::dynamodb::DynamoStore;
use servers::{DynamoDb, Emulator};

/// One table, and a prefix for every store; cases run one after the other, so the last is the one at hand.
struct Prefixes {
    server: DynamoDb,
    count: AtomicUsize,
    rounds: usize,
}

impl Prefixes {
    async fn start(emulator: Emulator) -> Option<Self> {
        let server = DynamoDb::start_as(emulator)?;
        make(&server.url()).await;
        let rounds = if is_full() && emulator == Emulator::Dynoxide { 100 } else { 4 };
        Some(Self { server, count: AtomicUsize::new(0), rounds })
    }

    fn prefix(&self) -> String {
        format!("case-{}", self.count.load(Ordering::Relaxed))
    }

    async fn open(&self) -> DynamoStore {
        open(&self.server.url(), &format!("&prefix={}&sweep=scan", self.prefix())).await
    }
}

impl Factory for Prefixes {
    type Store = DynamoStore;

    async fn fresh(&self) -> Fresh<DynamoStore> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Fresh::new(self.open().await)
    }

    async fn crash(&self, store: DynamoStore) -> Option<DynamoStore> {
        drop(store);
        Some(self.open().await)
    }

    /// Another attribute for each store.
    async fn damage(&self, store: DynamoStore, id: OperationId) -> Option<DynamoStore> {
        let config = aws_sdk_dynamodb::config::Builder::from(&config());
        let client = Client::from_conf(config.endpoint_url(self.server.url()).build());
        let digits = format!("{:032x}", u128::from_be_bytes(*id.as_bytes()));
        let partition = AttributeValue::S(format!("{}:{}", self.prefix(), &digits[..8]));
        let sort = AttributeValue::S(digits[8..].to_owned());
        let get = client.get_item().table_name("keys").key("pk", partition).key("sk", sort);
        let mut item = get.send().await.unwrap().item.expect("a record to damage");
        let count = self.count.load(Ordering::Relaxed);
        match count % 4 {
            0 => drop(item.insert("v".to_owned(), AttributeValue::N("2".to_owned()))),
            1 => drop(item.insert("tok".to_owned(), AttributeValue::B(Blob::new([1, 2, 3])))),
            2 => drop(item.remove("st")),
            _ => {
                let mut bytes = item["rec"].as_b().unwrap().as_ref().to_vec();
                let at = count * 37 % bytes.len();
                bytes[at] ^= 0x20;
                item.insert("rec".to_owned(), AttributeValue::B(Blob::new(bytes)));
            }
        }
        client.put_item().table_name("keys").set_item(Some(item)).send().await.unwrap();
        Some(store)
    }

    fn rounds(&self) -> usize {
        self.rounds
    }
}

// threats B2, B12, D4, D5, I6, J11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dynamodb_passes_in_dynoxide() {
    let Some(factory) = Prefixes::start(Emulator::Dynoxide).await else {
        return;
    };
    let start = SystemClock.boot();
    let report = exercise(&factory).await;
    println!("{report}, in {:?}", SystemClock.boot() - start);
    report.assert_passed();
    assert_eq!(report.skipped().collect::<Vec<_>>(), SKIPPED);
}

/// A second opinion. It is slow, because it takes one call at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dynamodb_passes_in_moto() {
    if !is_full() {
        return eprintln!("only in the full tier: ONLYONCE_TEST_TIER=full");
    }
    if let Some(factory) = Prefixes::start(Emulator::Moto).await {
        let report = exercise(&factory).await;
        println!("{report}");
        report.assert_passed();
    }
}

fn is_full() -> bool {
    std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full")
}

// threat A14
#[tokio::test]
async fn what_was_answered_before_a_kill_of_the_node_is_there_after_it() {
    for acks in [1, 10, 100, 1_000] {
        let Some(server) = DynamoDb::start() else {
            return;
        };
        make(&server.url()).await;
        let mut child = child("the_child_that_writes").expect("this binary is there");
        child.env(URL, server.url());
        let acked = kill_after(child, acks).expect("the child reports its writes");
        assert!(acked.count() >= acks);
        let store = open(&server.url(), "").await;
        check(&store, &acked).await.expect("nothing is lost");
    }
}

#[tokio::test]
#[ignore = "a child of the test above"]
async fn the_child_that_writes() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let store = DynamoStore::open_with(&address(&url, ""), config()).await.unwrap();
    let Err(why) = write_until_killed(store, std::io::stdout()).await;
    panic!("the child ended: {why}");
}

/// The clock of DynamoDB cannot be moved.
const SKIPPED: [&str; 2] = [
    "a_claim_at_its_not_after_is_in_time",
    "time_does_not_run_backward_when_the_clock_is_set_back",
];
const URL: &str = "ONLYONCE_CONFORMANCE_DYNAMODB";
