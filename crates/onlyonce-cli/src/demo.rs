//! `onlyonce demo`: a payments service, a client whose answers get lost, and the gateway in between.

mod bank;
mod child;
mod client;
mod news;
mod scene;
mod stage;
mod window;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use onlyonce::store::BoxError;
use tokio::time::sleep;

use self::bank::{Bank, Charge};
use self::child::Child;
use self::client::{Answer, Tap, tap, tap_and_lose_the_answer};
use self::news::News;
use self::stage::Stage;
use crate::commands::exit;
use crate::gateway::telemetry::{LogFlags, Telemetry, filter};

/// Watch a double tap be charged once.
///
/// Runs a sample payments service and a gateway in front of it, with nothing to set up, and tells what happens
/// line by line. Then it leaves both running, for you to try: in a terminal, or on a page in a browser.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// End after the story; the exit code says whether the ledger shows what was promised
    #[arg(long)]
    once: bool,
    /// Be the gateway of a demo, with this configuration
    #[arg(long, value_name = "FILE", hide = true)]
    gateway: Option<PathBuf>,
    /// What its gateway logs: error, warn, info, debug or trace
    #[arg(long, value_name = "FILTER", env = "ONLYONCE_LOG", default_value = "error", value_parser = filter)]
    log: String,
}

impl Demo {
    /// Tells the story.
    pub fn run(self) -> ExitCode {
        if let Some(file) = self.gateway {
            let telemetry = Telemetry::start(&LogFlags::new(self.log), None);
            let code = child::run(&file);
            telemetry.finish();
            return code;
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let story = story(self.once, &self.log);
        let told = runtime.map_err(BoxError::from).and_then(|runtime| runtime.block_on(story));
        match told {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => exit::bad_news("the ledger does not show what was promised"),
            Err(error) => exit::trouble(&format!("the demo cannot go on: {error}")),
        }
    }
}

async fn story(once: bool, log: &str) -> Result<bool, BoxError> {
    let folder = tempfile::tempdir()?;
    let news = News::new();
    let ledger = folder.path().join("ledger.db");
    let bank = Bank::open(&ledger, Some((news.clone(), "with"))).await?;
    let mut gateway = Child::start(bank.address, folder.path(), log).await?;
    println!(
        "A customer taps Pay. The charge is made, the answer is lost, so the customer taps again.\n"
    );
    without_the_gateway(&bank).await?;
    let bobs_answers_agree = with_the_gateway(&bank, gateway.address).await?;
    let carol_was_told = through_a_crash(&bank, &mut gateway).await?;
    let charges = bank.charges()?;
    show_ledger(&charges);
    let is_kept = bobs_answers_agree && carol_was_told && is_as_promised(&charges);
    if once {
        gateway.stop().await;
    } else {
        let (address, admin) = (gateway.address, gateway.admin);
        let stage = Stage::open(folder.path(), news, bank.clone(), gateway).await?;
        show_what_to_try(address, bank.address, admin, stage.address);
        tokio::signal::ctrl_c().await?;
    }
    Ok(is_kept)
}

async fn without_the_gateway(bank: &Bank) -> Result<(), BoxError> {
    println!("Without Onlyonce");
    let pay = Tap::new("ada", None);
    tap_and_lose_the_answer(bank.address, &pay, || bank.has_charged("ada", 1)).await?;
    line("Ada taps Pay", "charged, and the answer is lost");
    let again = tap(bank.address, &pay).await?;
    line("Ada taps again", &format!("{again}: charged twice"));
    println!();
    Ok(())
}

/// Whether the second tap got the answer of the first.
async fn with_the_gateway(bank: &Bank, gateway: SocketAddr) -> Result<bool, BoxError> {
    println!("With Onlyonce in front of the same service, and a key for each operation");
    let pay = Tap::new("bob", Some("bob-order-4711"));
    tap_and_lose_the_answer(gateway, &pay, || bank.has_charged("bob", 1)).await?;
    line("Bob taps Pay", "charged, and the answer is lost");
    let again = answered(gateway, &pay).await?;
    line("Bob taps again", &format!("{again}, the answer of the first tap: charged once"));
    println!();
    Ok(again.status == 201 && again.is_replay)
}

/// Whether the customer was told the truth after a crash.
async fn through_a_crash(bank: &Bank, gateway: &mut Child) -> Result<bool, BoxError> {
    println!("And when the gateway itself is killed in mid-charge");
    let pay = Tap::new("carol", Some("carol-order-4712"));
    tap_and_lose_the_answer(gateway.address, &pay, || bank.has_charged("carol", 1)).await?;
    gateway.kill().await?;
    line("Carol taps Pay", "the gateway is killed while the bank is at work");
    gateway.restart().await?;
    let again = tap(gateway.address, &pay).await?;
    line("Carol taps again", &format!("{again}"));
    line("", "It was sent and never answered, so it may have been charged: Onlyonce says so,");
    line("", "and does not run it again by itself. The ledger shows that it was right not to.");
    println!();
    Ok(again.status == 409)
}

/// The answer, once the first tap is no longer under way.
async fn answered(gateway: SocketAddr, pay: &Tap) -> Result<Answer, BoxError> {
    for _ in 0..RETRIES_MAX {
        let answer = tap(gateway, pay).await?;
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

fn show_what_to_try(gateway: SocketAddr, bank: SocketAddr, admin: SocketAddr, stage: SocketAddr) {
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
    println!("In a browser");
    println!(
        "  http://{stage}/ the same bank without and with Onlyonce, and buttons to break things"
    );
    println!("  http://{admin}/ the operator's page, where Carol's charge waits to be settled\n");
    println!("Ctrl-C ends it.");
}

const RETRIES_MAX: usize = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
