//! `onlyonce doctor`: is everything set up as the promise needs it?
//!
//! 1. Nothing is changed: no table is made, no lock is taken, no log is written back.
//! 2. It may run beside a gateway.
//! 3. Facts are read first (by the store's own module, and here `disk`, `locks`, `node`), then judged by pure functions.

mod config;
mod disk;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod locks;
mod node;
mod postgres;
mod redis;
mod report;
mod sqlite;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use self::report::{Finding, Report};
use super::access::print;
use super::exit;
use crate::config::{Config, StoreFlag, StoreUrl};

/// Check the settings that the promise rests on.
///
/// Reads the settings of the store, of this machine and of the configuration, and says for each promise whether it
/// holds; if not, why, and what to do. Nothing is changed, and a gateway may be running. Exits with 1 if a promise does
/// not hold, and with 3 if the store cannot be reached.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// The store: sqlite:FILE, postgres://…, redis://…, dynamodb:TABLE or env:NAME; goes before the store of the configuration
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    store: Option<StoreFlag>,
    /// The configuration to judge; it also names the store
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How the findings are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce doctor --config onlyonce.toml
  onlyonce doctor --store env:DATABASE_URL --format json";

impl Doctor {
    /// Looks, and says what was found.
    pub fn run(self) -> ExitCode {
        let (store, config) = match self.subjects() {
            Ok(subjects) => subjects,
            Err(message) => return exit::usage(&message),
        };
        let report = match super::block_on(examine(&store, config.as_ref())) {
            Ok(report) => report,
            Err(error) => return exit::trouble(&format!("cannot start: {error}")),
        };
        let printed = print(&match self.format {
            Format::Text => report.text(),
            Format::Json => format!("{:#}\n", report.json()),
        });
        match (&report.error, printed) {
            (Some(error), _) => exit::trouble(error),
            (None, Err(failed)) => failed.exit(),
            (None, Ok(_)) if report.holds() => ExitCode::SUCCESS,
            (None, Ok(_)) => ExitCode::from(1),
        }
    }

    fn subjects(&self) -> Result<(StoreUrl, Option<Config>), String> {
        let config = self.config.as_ref().map(|file| Config::load(file)).transpose();
        let config = config.map_err(|error| super::config::told(&error))?;
        let store = match (&self.store, &config) {
            (Some(store), _) => store.url().map_err(|error| format!("--store: {error}"))?,
            (None, Some(config)) => config.store.clone(),
            (None, None) => {
                return Err("there is no store: pass --store or --config".to_owned());
            }
        };
        Ok((store, config))
    }
}

async fn examine(store: &StoreUrl, config: Option<&Config>) -> Report {
    let mut report = Report::new(store.to_string());
    let found = match store {
        StoreUrl::Memory => Ok(vec![config::memory()]),
        StoreUrl::Sqlite(path) => sqlite::examine(path),
        StoreUrl::Postgres(url) => postgres::examine(url.reveal()).await,
        StoreUrl::Redis(url) => redis::examine(url.reveal()).await,
        #[cfg(feature = "dynamodb")]
        StoreUrl::DynamoDb(address) => dynamodb::examine(address).await,
    };
    match found {
        Ok(findings) => report.add(findings),
        Err(error) => report.error = Some(error),
    }
    if let Some(filter) = config.and_then(|config| config.filter.as_ref()) {
        report.add([redis::examine_filter(filter.reveal()).await]);
    }
    if let Some(config) = config {
        let findings = config::judge(config, store, report.is_durable());
        report.add(findings);
    }
    report.add([node::examine(store, config)]);
    report
}

/// The error with everything that led to it, each said once.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |told, cause| match cause.to_string() {
        cause if told.contains(&cause) => told,
        cause => format!("{told}: {cause}"),
    })
}

/// What the clock of a store says of the promise that keys are kept.
fn judge_clock(ahead_ms: i64) -> Finding {
    let (seconds, setting) = (ahead_ms.unsigned_abs().div_ceil(1000), "clock");
    let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let fix = "synchronise both clocks (NTP)";
    let promise = report::Promise::Kept;
    match ahead_ms.abs() {
        CLOCK_WRONG_MS.. => Finding::broken(
            promise,
            setting,
            format!(
                "the store's clock is {seconds} s {side} this machine's; one of them is wrong, and by a wrong clock of the store keys expire too early or too late"
            ),
            fix,
        ),
        CLOCK_OFF_MS.. => Finding::at_risk(
            promise,
            setting,
            format!("the store's clock is {seconds} s {side} this machine's"),
            fix,
        ),
        _ => Finding::holds(promise, setting, "the store's clock agrees with this machine's"),
    }
}

/// More than any two clocks that are synchronised are apart.
const CLOCK_OFF_MS: i64 = 2_000;
/// So much is the slack that a running gateway grants a store's clock.
pub(super) const CLOCK_WRONG_MS: i64 = 60_000;
