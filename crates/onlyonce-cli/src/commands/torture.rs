//! `onlyonce torture`: attacks an API, and says whether one key can execute twice.

mod file;
mod flags;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::access::print;
use super::exit;
use crate::torture::oracle::Oracle;
use crate::torture::plan::{Options, marker_prefix};
use crate::torture::report::{Format, Report};
use crate::torture::shim::Shim;
use crate::torture::target::{Address, Target};
use crate::torture::wire::Connector;
use crate::torture::{self, Hunt, Limits, NoHunt, Progress, Verdict};

pub use self::flags::Torture;

impl Torture {
    /// Attacks, and reports.
    pub fn run(self) -> ExitCode {
        let flags = match self.with_file() {
            Ok(flags) => flags,
            Err(message) => return exit::usage(&message),
        };
        match super::block_on(flags.act()) {
            Ok(code) => code.unwrap_or_else(|code| code),
            Err(error) => exit::trouble(&format!("cannot start: {error}")),
        }
    }

    async fn act(self) -> Result<ExitCode, ExitCode> {
        let target = self.target().map_err(|message| exit::usage(&message))?;
        let seed = self.seed.unwrap_or_else(random_seed);
        let options = self.options(seed);
        self.check(&target).map_err(|message| exit::usage(&message))?;
        if self.dry_run {
            return told(&torture::dry_run(&target, &options)).map(|()| ExitCode::SUCCESS);
        }
        let progress = Progress::new(self.quiet);
        progress.say(&banner(&target, &options, self.requests_max, self.rate));
        let tls = self.tls(&target)?;
        let oracle = self.oracle(seed, tls.as_ref()).await?;
        let limits = Limits {
            requests_max: self.requests_max,
            rate: self.rate,
            patience: self.timeout,
            settle: self.settle,
            time: self.time_limit,
        };
        let secrets = target.secrets.clone();
        let mut hunt = Hunt::new(target, tls.as_ref(), oracle, limits, progress);
        hunt.hooks = self.hooks();
        stop_by_signal(&hunt.is_stopped, progress);
        let ran = torture::run(hunt, &options).await;
        let code = match ran {
            Ok(report) => self.report(&report, &|text| secrets.scrubbed(text)),
            Err(no_hunt) => Err(self.no_hunt(no_hunt, &|text| secrets.scrubbed(text))),
        };
        self.clean_up().await;
        code
    }

    fn no_hunt(&self, why: NoHunt, scrubbed: &dyn Fn(&str) -> String) -> ExitCode {
        match why {
            NoHunt::Target(why) => exit::trouble(&scrubbed(&why)),
            NoHunt::SeedUsed => exit::usage(
                "this seed was used against this target before, and its keys are known there; choose another --seed",
            ),
            NoHunt::Blind(why) => {
                let hint = if self.upstream_shim.is_some() {
                    "does the target forward to the address of --upstream-shim?"
                } else {
                    "does the oracle count by {marker}?"
                };
                self.blind(&scrubbed(&format!("{why}; {hint}")))
            }
        }
    }

    /// INCONCLUSIVE before the first attack: machines get their report all the same.
    fn blind(&self, why: &str) -> ExitCode {
        eprintln!("onlyonce: INCONCLUSIVE: {why}");
        if self.format == Format::Json {
            let report = serde_json::json!({
                "verdict": "inconclusive", "why": why, "findings": [], "counts": {}, "card": {}, "oracle": "not working",
            });
            // Whoever closed the pipe has the exit code.
            let _ = print(&format!("{report:#}\n"));
        }
        ExitCode::from(INCONCLUSIVE)
    }

    fn report(
        &self,
        report: &Report,
        scrubbed: &dyn Fn(&str) -> String,
    ) -> Result<ExitCode, ExitCode> {
        for name in &self.reports {
            let Some(format) = Format::of_file(name) else { continue };
            let written = std::fs::write(name, scrubbed(&report.rendered(format, false)));
            written.map_err(|error| exit::trouble(&format!("cannot write {name}: {error}")))?;
        }
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        told(&scrubbed(&report.rendered(self.format, is_terminal)))?;
        Ok(ExitCode::from(match report.found.verdict {
            Verdict::NotObserved => 0,
            Verdict::Violated => 1,
            Verdict::Inconclusive => INCONCLUSIVE,
        }))
    }

    fn tls(&self, target: &Target) -> Result<Option<rustls::ClientConfig>, ExitCode> {
        let is_count_tls = self.count_url.as_ref().is_some_and(|url| url.starts_with("https://"));
        if !is_count_tls && target.nodes.iter().all(|node| !node.is_tls) {
            return Ok(None);
        }
        let config = crate::tls::client_config(self.ca.as_deref(), None);
        config.map(Some).map_err(|error| exit::usage(&error.to_string()))
    }

    /// The strongest that was given.
    async fn oracle(
        &self,
        seed: u64,
        tls: Option<&rustls::ClientConfig>,
    ) -> Result<Oracle, ExitCode> {
        let cannot = |error: std::io::Error| exit::trouble(&format!("cannot listen: {error}"));
        let prefix = marker_prefix(seed);
        if let Some(address) = self.upstream_shim {
            let shim = Shim::listen(address, self.shim_time, &prefix).await.map_err(cannot)?;
            return Ok(Oracle::Shim(shim));
        }
        if let Some(url) = &self.count_url {
            let address = Address::parse(url).map_err(|message| exit::usage(&message))?;
            let connector = Connector::new(&address, tls, "http/1.1");
            let headers = flags::headers("--count-header", &self.count_headers)
                .map_err(|message| exit::usage(&message))?;
            return Ok(Oracle::Url { connector, headers });
        }
        if let (Some(query), Some(database)) = (&self.count_sql, &self.count_db) {
            return Ok(Oracle::Sql { database: database.clone(), query: query.clone() });
        }
        if let Some(command) = &self.count_cmd {
            return Ok(Oracle::Command(command.clone()));
        }
        if let Some(address) = self.webhook_listen {
            let hook =
                Shim::listen(address, std::time::Duration::ZERO, &prefix).await.map_err(cannot)?;
            return Ok(Oracle::Webhook(hook));
        }
        Ok(Oracle::Answers)
    }

    async fn clean_up(&self) {
        let Some(command) = &self.cleanup_cmd else { return };
        let ran = tokio::process::Command::new("sh").args(["-c", command]).status().await;
        if !ran.is_ok_and(|status| status.success()) {
            eprintln!("onlyonce: --cleanup-cmd failed");
        }
    }
}

/// The first interrupt ends the attacks and still reports.
fn stop_by_signal(is_stopped: &Arc<AtomicBool>, progress: Progress) {
    let is_stopped = is_stopped.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            is_stopped.store(true, Ordering::Relaxed);
            progress.say("interrupted: finishing this trial, then the report");
        }
    });
}

fn told(text: &str) -> Result<(), ExitCode> {
    print(text).map(|_| ()).map_err(|failed| failed.exit())
}

fn banner(target: &Target, options: &Options, requests_max: usize, rate: u32) -> String {
    let nodes: Vec<_> = target.nodes.iter().map(|node| node.url(&node.path)).collect();
    let nodes =
        nodes.iter().map(|url| torture::secrets::shown_url(url)).collect::<Vec<_>>().join(", ");
    format!(
        "onlyonce torture: {} {nodes}\n{requests_max} requests at most, {rate} a second but for bursts; seed {}; markers begin with {}\n",
        target.method,
        options.seed,
        marker_prefix(options.seed)
    )
}

fn random_seed() -> u64 {
    let mut bytes = [0; 4];
    // Without chance, the same seed each time: the target will say that it knows the keys.
    let _ = getrandom::fill(&mut bytes);
    u64::from(u32::from_le_bytes(bytes))
}

const INCONCLUSIVE: u8 = 4;
