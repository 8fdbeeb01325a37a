//! `onlyonce config`: is a configuration good, and what does a whole one look like?

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use super::show;
use crate::config::{Config, ConfigError};
use crate::tls::Secured;

/// What to do about configurations.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file, and list every error
    Check {
        /// The file to read
        file: PathBuf,
    },
    /// Print a configuration file with every default
    Default,
    /// Print the JSON Schema of a configuration file, for editors
    #[command(after_help = SCHEMA)]
    Schema,
}

const SCHEMA: &str = "\
In an editor with a language server for TOML:
  onlyonce config schema > onlyonce.schema.json
and as the first line of onlyonce.toml and of the files that it includes:
  #:schema ./onlyonce.schema.json";

impl ConfigCommand {
    /// Runs the command: data to stdout, all else to stderr.
    pub fn run(&self) -> io::Result<ExitCode> {
        match self {
            Self::Check { file } => report(file, check(file)),
            Self::Default => Ok(show(Config::default_text())),
            Self::Schema => Ok(show(&Config::schema_text())),
        }
    }
}

/// Reads the file and those that it includes, and nothing else: no port is opened, no store is touched.
pub fn check(file: &Path) -> Result<Config, ConfigError> {
    Config::load(file)
}

fn report(file: &Path, checked: Result<Config, ConfigError>) -> io::Result<ExitCode> {
    let mut stderr = io::stderr();
    match checked {
        Ok(config) => {
            let secured = match Secured::by(&config) {
                Ok(secured) => secured,
                Err(error) => {
                    writeln!(stderr, "{}: {error}", file.display())?;
                    return Ok(ExitCode::from(USAGE));
                }
            };
            config
                .warnings
                .iter()
                .try_for_each(|note| writeln!(stderr, "{}", note.as_warning()))?;
            for warning in secured.warnings {
                writeln!(stderr, "{}: warning: {warning}", file.display())?;
            }
            let lines = config.callers().into_iter().chain(config.keyless());
            let told = [verdict(file, &config)].into_iter().chain(lines);
            Ok(show(&told.map(|line| line + "\n").collect::<String>()))
        }
        Err(error) => {
            writeln!(stderr, "{}", told(&error))?;
            Ok(ExitCode::from(USAGE))
        }
    }
}

fn verdict(file: &Path, config: &Config) -> String {
    let routes = counted(config.routes.len(), "route");
    let verdict = format!("{} is good: {routes}", file.display());
    match config.included.len() {
        0 => verdict,
        files => format!("{verdict}, with those of {}", counted(files, "included file")),
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// The error and what led to it, in one line where it has only one.
pub(super) fn told(error: &ConfigError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// The exit code for what the caller wrote wrong.
const USAGE: u8 = 2;
