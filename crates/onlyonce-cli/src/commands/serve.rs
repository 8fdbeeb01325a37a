//! `onlyonce serve`.

mod notify;

use std::path::PathBuf;
use std::process::ExitCode;

use onlyonce::Left;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::notify::ServiceManager;
use super::access::print;
use super::exit;
use crate::config::{Config, Flags, StoreUrl};
use crate::gateway::telemetry::{LogFlags, Telemetry};
use crate::gateway::{DRAIN, Gateway};
use crate::tls::Secured;

/// Run the gateway in front of a service.
///
/// Clients send requests with an Idempotency-Key to the gateway. Each POST or PATCH with a key is forwarded at
/// most once, and a retry gets the first answer. Everything else is forwarded unchanged.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    log: LogFlags,
    /// The configuration file; `onlyonce config default` prints one with every default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Allow a store that loses everything when the process ends (memory:)
    #[arg(long)]
    ephemeral: bool,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce serve --upstream http://127.0.0.1:9000
  onlyonce serve --config onlyonce.toml --admin 127.0.0.1:8081

Try it:
  curl -i http://127.0.0.1:8080/charges -H 'Idempotency-Key: order-4711-checkout-1' -d amount=7998";

impl Serve {
    /// Serves until it is told to stop.
    pub fn run(self) -> ExitCode {
        let config = match self.config() {
            Ok(config) => config,
            Err(message) => return exit::usage(&message),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                let telemetry = Telemetry::start(&self.log, config.otlp.as_ref());
                let code = runtime.block_on(self.serve(&config));
                telemetry.finish();
                // Dropped, it would wait for the listeners, also after the signal to end at once.
                runtime.shutdown_background();
                code
            }
            Err(error) => exit::trouble(&format!("cannot start: {error}")),
        }
    }

    fn config(&self) -> Result<Config, String> {
        let config = match &self.config {
            Some(file) => Config::load(file).map_err(|error| super::config::told(&error))?,
            None => Config::default(),
        };
        let config = config.with_flags(self.flags.clone()).map_err(|error| error.to_string())?;
        if config.store == StoreUrl::Memory && !self.ephemeral {
            return Err(EPHEMERAL.to_owned());
        }
        let secured = Secured::by(&config).map_err(|error| error.to_string())?;
        for warning in &config.warnings {
            eprintln!("{}", warning.as_warning());
        }
        for warning in secured.warnings {
            eprintln!("onlyonce: warning: {warning}");
        }
        Ok(config)
    }
}

const EPHEMERAL: &str = "memory: forgets every key when the process ends, and then a retry is executed again; \
                         use sqlite:FILE, or pass --ephemeral if that is what you want";

impl Serve {
    async fn serve(&self, config: &Config) -> ExitCode {
        let Ok(mut signals) = Signals::listen() else {
            return exit::trouble("cannot listen for signals");
        };
        let manager = ServiceManager::from_environment();
        let gateway = match Gateway::start(config).await {
            Ok(gateway) => gateway,
            Err(error) if error.is_of_configuration() => return exit::usage(&error.to_string()),
            Err(error) => return exit::trouble(&error.to_string()),
        };
        let line = ready(config, &gateway);
        // It serves also if nobody reads its first line.
        let _ = print(&format!("{line}\n"));
        manager.ready(&line);
        tokio::select! {
            () = self.run_until_stop(&gateway, &mut signals, &manager) => {}
            () = manager.keep_alive() => {}
        }
        let wait_s = DRAIN.as_secs();
        eprintln!("onlyonce: stopping; waiting at most {wait_s} s for what is under way");
        manager.stopping();
        tokio::select! {
            left = gateway.stop() => report(left),
            () = manager.keep_alive() => ExitCode::SUCCESS,
            () = signals.stop_again() => {
                exit::trouble("stopped at once; unfinished operations are marked unknown")
            }
        }
    }

    async fn run_until_stop(
        &self,
        gateway: &Gateway,
        signals: &mut Signals,
        manager: &ServiceManager,
    ) {
        while let Told::Reload = signals.next().await {
            manager.reloading();
            // A reload that is dropped has changed nothing: its last step is the only one that does.
            let told = tokio::select! {
                told = self.reload(gateway) => told,
                () = signals.stop() => return,
            };
            eprintln!("onlyonce: {told}");
            manager.ready(&told);
        }
    }

    /// Reads the file again, and says what came of it.
    async fn reload(&self, gateway: &Gateway) -> String {
        let Some(file) = &self.config else {
            return "SIGHUP: there is no configuration file to read again; nothing has changed"
                .to_owned();
        };
        let taken = match self.config() {
            Ok(config) => gateway.reload(config).await.map_err(|error| error.to_string()),
            Err(message) => Err(message),
        };
        let file = file.display();
        match taken {
            Ok(changes) => format!("SIGHUP: {file} was read again and is in force: {changes}"),
            Err(error) => {
                format!(
                    "SIGHUP: {file} is not taken, and the old configuration stays in force: {error}"
                )
            }
        }
    }
}

/// What a signal asks for.
enum Told {
    Stop,
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hang_up.recv() => Told::Reload,
        }
    }

    /// A SIGHUP that comes meanwhile is still there for [`next`](Self::next).
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for another word to stop.
    async fn stop_again(&mut self) {
        while let Told::Reload = self.next().await {
            eprintln!("onlyonce: SIGHUP is ignored while the gateway stops");
        }
    }
}

/// One line, naming the addresses, and how callers are told apart: if that is wrong, it shows only when it does harm.
fn ready(config: &Config, gateway: &Gateway) -> String {
    let mut line = format!("onlyonce ready: listening on {}", gateway.url());
    if let Some(upstream) = &config.upstream {
        line += &format!(", upstream {}", upstream.uri());
    }
    line += &format!(", store {}, {}", config.store, config.callers_of_policy());
    match config.callers().len() - 1 {
        0 => {}
        1 => line += "; 1 route has its own way (onlyonce config check)",
        routes => line += &format!("; {routes} routes have their own way (onlyonce config check)"),
    }
    match gateway.admin_url() {
        Some(admin) => line += &format!(", admin {admin}"),
        None => line += ", no admin listener (--admin 127.0.0.1:8081 opens one)",
    }
    line
}

fn report(left: Left) -> ExitCode {
    if left.unknown > 0 {
        eprintln!(
            "onlyonce: {} operations had not ended; their outcome is unknown until someone settles them",
            left.unknown
        );
    }
    if left.disowned > 0 {
        eprintln!(
            "onlyonce: {} claims were never confirmed by the store; nothing of them was sent",
            left.disowned
        );
    }
    eprintln!("onlyonce: stopped");
    ExitCode::SUCCESS
}
