//! `onlyonce demo`: a payments service, a client whose answers get lost, and the gateway in between.

mod bank;
mod child;
mod client;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use onlyonce::store::BoxError;
use tokio::time::sleep;

use self::bank::{Bank, Charge};
use self::child::Child;
use self::client::{Answer, tap, tap_and_lose_the_answer};
use crate::commands::exit;
use crate::config::{Config, Flags, StoreUrl};
use crate::gateway::Gateway;

/// Watch a double tap be charged once.
///
/// Runs a sample payments service and the gateway in one process, with nothing to set up, and tells what
/// happens line by line. Then it leaves both running, for you to try.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// End after the story; the exit code says whether the ledger shows what was promised
    #[arg(long)]
    once: bool,
}

impl Demo {
    /// Tells the story.
    pub fn run(self) -> ExitCode {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let told =
            runtime.map_err(BoxError::from).and_then(|runtime| runtime.block_on(story(self.once)));
        match told {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => exit::bad_news("the ledger does not show what was promised"),
            Err(error) => exit::trouble(&format!("the demo cannot go on: {error}")),
        }
    }
}

async fn story(once: bool) -> Result<bool, BoxError> {
    let folder = tempfile::tempdir()?;
    let bank = Bank::open(&folder.path().join("ledger.db")).await?;
    let gateway = start_gateway(folder.path(), bank.address).await?;
    println!(
        "A customer taps Pay. The charge is made, the answer is lost, so the customer taps again.\n"
    );
    without_the_gateway(&bank).await?;
    let bobs_answers_agree = with_the_gateway(&bank, gateway.address).await?;
    let carol_was_told = through_a_crash(&bank, folder.path()).await?;
    let charges = bank.charges()?;
    show_ledger(&charges);
    let is_kept = bobs_answers_agree && carol_was_told && is_as_promised(&charges);
    if !once {
        show_what_to_try(gateway.address, bank.address);
        tokio::signal::ctrl_c().await?;
    }
    gateway.stop().await;
    Ok(is_kept)
}

async fn start_gateway(folder: &Path, bank: SocketAddr) -> Result<Gateway, BoxError> {
    let config = |listen: &str| -> Result<Config, BoxError> {
        let flags = Flags {
            upstream: Some(format!("http://{bank}").parse()?),
            listen: Some(listen.parse()?),
            store: Some(StoreUrl::Sqlite(folder.join("onlyonce.db")).into()),
            ..Flags::default()
        };
        Ok(Config::default().with_flags(flags)?)
    };
    // The usual port if it is free, for the lines to try by hand.
    let usual = config("127.0.0.1:8080")?;
    let is_free = std::net::TcpListener::bind(usual.listen).is_ok();
    let config = if is_free { usual } else { config("127.0.0.1:0")? };
    Ok(Gateway::start(&config).await?)
}

async fn without_the_gateway(bank: &Bank) -> Result<(), BoxError> {
    println!("Without Onlyonce");
    tap_and_lose_the_answer(bank.address, "ada", None, || bank.has_charged("ada", 1)).await?;
    line("Ada taps Pay", "charged, and the answer is lost");
    let again = tap(bank.address, "ada", None).await?;
    line("Ada taps again", &format!("{again}: charged twice"));
    println!();
    Ok(())
}

/// Whether the second tap got the answer of the first.
async fn with_the_gateway(bank: &Bank, gateway: SocketAddr) -> Result<bool, BoxError> {
    println!("With Onlyonce in front of the same service, and a key for each operation");
    let key = Some("bob-order-4711");
    tap_and_lose_the_answer(gateway, "bob", key, || bank.has_charged("bob", 1)).await?;
    line("Bob taps Pay", "charged, and the answer is lost");
    let again = answered(gateway, "bob", key).await?;
    line("Bob taps again", &format!("{again}, the answer of the first tap: charged once"));
    println!();
    Ok(again.status == 201 && again.is_replay)
}

/// Whether the customer was told the truth after a crash.
async fn through_a_crash(bank: &Bank, folder: &Path) -> Result<bool, BoxError> {
    println!("And when the gateway itself is killed in mid-charge");
    let key = Some("carol-order-4712");
    let mut child = Child::start(bank.address, folder).await?;
    let address = child.address;
    tap_and_lose_the_answer(address, "carol", key, || bank.has_charged("carol", 1)).await?;
    child.kill().await?;
    line("Carol taps Pay", "the gateway is killed while the bank is at work");
    let child = Child::start(bank.address, folder).await?;
    let again = tap(child.address, "carol", key).await?;
    line("Carol taps again", &format!("{again}"));
    line("", "It was sent and never answered, so it may have been charged: Onlyonce says so,");
    line("", "and does not run it again by itself. The ledger shows that it was right not to.");
    println!();
    Ok(again.status == 409)
}

/// The answer, once the first tap is no longer under way.
async fn answered(
    gateway: SocketAddr,
    customer: &str,
    key: Option<&str>,
) -> Result<Answer, BoxError> {
    for _ in 0..RETRIES_MAX {
        let answer = tap(gateway, customer, key).await?;
        if answer.status != 409 {
            return Ok(answer);
        }
        sleep(RETRY_PAUSE).await;
    }
    Err("the first tap never ended".into())
}

fn line(who: &str, what: &str) {
    println!("  {who:<17} {what}");
}

fn show_ledger(charges: &[Charge]) {
    println!("The bank's ledger");
    println!("  {:<10} {:>6}  {:<10}", "customer", "taps", "charges");
    for customer in ["ada", "bob", "carol"] {
        let ids: Vec<_> =
            charges.iter().filter(|charge| charge.customer == customer).map(Charge::id).collect();
        let verdict = if ids.len() == 1 { "once" } else { "twice!" };
        println!("  {customer:<10} {:>6}  {} ({verdict})", 2, ids.join(", "));
    }
    println!();
}

fn is_as_promised(charges: &[Charge]) -> bool {
    let count = |customer| charges.iter().filter(|charge| charge.customer == customer).count();
    (count("ada"), count("bob"), count("carol")) == (2, 1, 1)
}

fn show_what_to_try(gateway: SocketAddr, bank: SocketAddr) {
    let charge = "-H 'Content-Type: application/json'";
    println!(
        "Still running: the gateway on http://{gateway}, the bank on http://{bank}. Try it:\n"
    );
    println!(
        "  curl -i http://{gateway}/charges -H 'Idempotency-Key: my-first-charge-key' {charge} -d '{{\"customer\":\"you\",\"amount\":100}}'"
    );
    println!("  (the same line again: the same charge, with Idempotent-Replayed: true)");
    println!(
        "  curl -i http://{gateway}/charges -H 'Idempotency-Key: my-first-charge-key' {charge} -d '{{\"customer\":\"you\",\"amount\":999}}'"
    );
    println!("  curl -s http://{gateway}/charges");
    println!(
        "  onlyonce send POST http://{gateway}/charges --json '{{\"customer\":\"you\",\"amount\":100}}'"
    );
    println!("  or pay in a browser, however often you tap: http://{gateway}/\n");
    println!("Ctrl-C ends it.");
}

const RETRIES_MAX: usize = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
