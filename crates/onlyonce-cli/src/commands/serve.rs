//! `onlyonce serve`.

use std::path::PathBuf;
use std::process::ExitCode;

use onlyonce::Left;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit;
use crate::config::{Config, Flags, StoreUrl};
use crate::gateway::{DRAIN, Gateway};

/// Run the gateway in front of a service.
///
/// Clients send requests with an Idempotency-Key to the gateway. Each POST or PATCH with a key is forwarded at
/// most once, and a retry gets the first answer. Everything else is forwarded unchanged.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    #[command(flatten)]
    flags: Flags,
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
                let code = runtime.block_on(serve(&config));
                // Dropped, it would wait for the listeners, also after the signal to end at once.
                runtime.shutdown_background();
                code
            }
            Err(error) => exit::trouble(&format!("cannot start: {error}")),
        }
    }

    fn config(self) -> Result<Config, String> {
        let config = match &self.config {
            Some(file) => Config::load(file).map_err(|error| super::config::told(&error))?,
            None => Config::default(),
        };
        let config = config.with_flags(self.flags).map_err(|error| error.to_string())?;
        if config.store == StoreUrl::Memory && !self.ephemeral {
            return Err(EPHEMERAL.to_owned());
        }
        for warning in &config.warnings {
            eprintln!("{}", warning.as_warning());
        }
        Ok(config)
    }
}

const EPHEMERAL: &str = "memory: forgets every key when the process ends, and then a retry is executed again; \
                         use sqlite:FILE, or pass --ephemeral if that is what you want";

async fn serve(config: &Config) -> ExitCode {
    let Ok(mut signals) = Signals::listen() else {
        return exit::trouble("cannot listen for signals");
    };
    let gateway = match Gateway::start(config).await {
        Ok(gateway) => gateway,
        Err(error) if error.is_of_configuration() => return exit::usage(&error.to_string()),
        Err(error) => return exit::trouble(&error.to_string()),
    };
    println!("{}", ready(config, &gateway));
    tokio::select! {
        () = signals.stop() => {}
        () = gateway.watch_clock() => {}
    }
    eprintln!("onlyonce: stopping; waiting at most {} s for what is under way", DRAIN.as_secs());
    tokio::select! {
        left = gateway.stop() => report(left),
        () = signals.stop() => {
            exit::trouble("stopped at once; what was under way will be found as unknown")
        }
    }
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

    /// Waits for the word to stop. A terminal that is closed is no such word, nor is the signal by which other
    /// servers read their configuration again: to end would leave unknown outcomes.
    async fn stop(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => eprintln!("onlyonce: {HANG_UP}"),
            }
        }
    }
}

const HANG_UP: &str =
    "SIGHUP is ignored: the configuration is read at start only; restart to change it";

/// One line, naming the addresses.
fn ready(config: &Config, gateway: &Gateway) -> String {
    let mut line = format!("onlyonce ready: listening on http://{}", gateway.address);
    if let Some(upstream) = &config.upstream {
        line += &format!(", upstream {}", upstream.uri());
    }
    line += &format!(", store {}", config.store);
    if let Some(admin) = gateway.admin {
        line += &format!(", admin http://{admin}");
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
