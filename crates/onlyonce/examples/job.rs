//! A consumer and a cron job whose work happens once, however often they are told to do it.
//!
//! ```text
//! cargo run -p onlyonce --no-default-features --features sqlite --example job
//! ```
//!
//! Run it twice: the second run finds the answers of the first one in `job.db`.

use std::time::Duration;

use onlyonce::policy::Recovery;
use onlyonce::scope::Principal;
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::{Failure, Once, OnceError, Operation, Outcome, Policy};
use serde::Serialize;

/// A message as a queue delivers it: at least once, so sometimes twice.
#[derive(Clone, Serialize)]
struct Order {
    number: u32,
    parcels: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "job.db".to_owned());
    let once = Once::new(SqliteStore::open(file).await?);

    let order = Order { number: 4711, parcels: 2 };
    consume(&once, order.clone()).await?;
    consume(&once, order).await?; // the queue delivers it again
    consume(&once, Order { number: 4712, parcels: 0 }).await?;
    nightly_report(&once, "2026-03-01").await?;

    // Waits for what is under way, so that nothing is left unknown.
    once.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

/// The key is the order, so that a second message about it is a duplicate; the payload is compared, so that another
/// order under the same number is noticed.
async fn consume(once: &Once, order: Order) -> Result<(), Box<dyn std::error::Error>> {
    let queue = Principal::of("queue", b"orders");
    let key = format!("order-{}", order.number);
    let shipping = Operation::new("ship-order", queue, &key)?.with_payload(&order)?;
    let shipped = once.run(shipping, move |attempt| async move {
        if order.parcels == 0 {
            // Nothing happened: the key stays free, and the message may come again.
            return Err(Failure::not_done("there is nothing to ship"));
        }
        // The carrier gets a key too, the same at every attempt. `?` on any error means "it may have happened".
        print_label(&attempt.derive("label")).await?;
        Ok(format!("{} parcels", order.parcels))
    });
    match shipped.await {
        Ok(Outcome::Fresh(what)) => println!("{key}: shipped {what}"),
        Ok(Outcome::Replayed(what)) => println!("{key}: was shipped before, {what}"),
        Ok(Outcome::InProgress { retry_after }) => println!("{key}: again in {retry_after:?}"),
        Ok(Outcome::Reused) => println!("{key}: another order has this number"),
        Ok(Outcome::Unknown { .. }) => {
            println!("{key}: may have shipped; look before you settle it")
        }
        Err(OnceError::NotDone(why)) => println!("{key}: not shipped: {why}"),
        Err(error) => println!("{key}: not shipped: {error}"),
    }
    Ok(())
}

/// The key is the day: cron may start this on two machines, or again after a crash. The report may be written twice
/// without harm, so an outcome that is not known is simply run again.
async fn nightly_report(once: &Once, day: &str) -> Result<(), Box<dyn std::error::Error>> {
    let rules = Policy::job().with_route("nightly-report").with_recovery(Recovery::Release);
    let cron = Principal::of("cron", b"reports");
    let report = Operation::new("nightly-report", cron, day)?.with_policy(rules);
    match once.run(report, |_| async { Ok("17 orders".to_owned()) }).await? {
        Outcome::Fresh(lines) => println!("report of {day}: {lines}"),
        Outcome::Replayed(lines) => println!("report of {day} was written before: {lines}"),
        other => println!("report of {day}: {other:?}"),
    }
    Ok(())
}

/// Stands for the carrier's API.
async fn print_label(_key: &str) -> Result<(), std::io::Error> {
    Ok(())
}
