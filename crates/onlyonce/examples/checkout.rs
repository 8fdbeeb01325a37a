//! A checkout that charges once, whatever becomes of the network and of this process.
//!
//! Start `onlyonce demo`, then run it with the URL of its gateway, as often as you like:
//!
//! ```text
//! cargo run -p onlyonce --features client-journal --example checkout -- http://127.0.0.1:8080 4711
//! ```

use onlyonce::client::{Client, Journal, Outcome};
use onlyonce::key::Key;
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let service = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let order = arguments.next().unwrap_or_else(|| "4711".to_owned());

    let journal = Journal::open("checkout.journal").await?;
    let once = Client::new().with_journal(journal);

    // What an earlier run of this program left open is finished first, with the same keys.
    for (_, end) in once.resume().await?.operations {
        println!("left open by an earlier run: {}", end.map_or("not through", |end| end.name()));
    }

    // The key names the order, not the payload: the same order is the same charge, for ever.
    let charge = once
        .post(&format!("{service}/charges"))
        .with_key(Key::derive(["shop", "acme", "order", &order]))
        .json(&json!({ "customer": "ada", "amount": 7998 }));
    match charge.send().await? {
        Outcome::Fresh(answer) => println!("charged now: {}", answer.text().trim()),
        Outcome::Replayed(answer) => println!("was charged before: {}", answer.text().trim()),
        Outcome::Done { .. } => println!("was charged; the receipt is no longer kept"),
        Outcome::Rejected { answer, .. } => println!("not charged: {}", answer.status),
        unknown @ Outcome::Unknown { .. } => println!("{}", unknown.advice()),
    }
    Ok(())
}
