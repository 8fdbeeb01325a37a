//! A checkout that charges once, even if the network fails or this process is killed.
//!
//! Start `onlyonce demo`, then run it with the URL of its gateway, as often as you like:
//!
//! ```text
//! cargo run -p onlyonce --features client-journal --example checkout -- http://127.0.0.1:8080 4711
//! ```

use onlyonce::client::{Client, Journal, SendOutcome};
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
    for (key, end) in once.resume().await?.operations {
        let outcome = end.map_or("did not get through", |end| end.name());
        println!("left open by an earlier run: {}: {outcome}", key.as_str());
    }

    // The key names the order, not the payload: the same order is the same charge.
    let charge = once
        .post(&format!("{service}/charges"))
        .with_key(Key::derive(["shop", "acme", "order", &order]))
        .json(&json!({ "customer": "ada", "amount": 7998 }));
    match charge.send().await? {
        SendOutcome::Fresh(answer) => println!("charged now: {}", answer.text().trim()),
        SendOutcome::Replayed(answer) => println!("was charged before: {}", answer.text().trim()),
        SendOutcome::Done { .. } => println!("was charged; the receipt did not arrive"),
        ref refused @ SendOutcome::Rejected { ref answer, .. } => {
            println!("not charged: {}. {}", answer.status, refused.advice_for_given_key());
        }
        unknown @ SendOutcome::Unknown { .. } => println!("{}", unknown.advice()),
    }
    Ok(())
}
