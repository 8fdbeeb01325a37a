//! The command `onlyonce`.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onlyonce_cli::commands::config::ConfigCommand;

/// Make the second request harmless.
#[derive(Debug, Parser)]
#[command(name = "onlyonce", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a configuration, or print the default one
    #[command(subcommand)]
    Config(ConfigCommand),
}

fn main() -> io::Result<ExitCode> {
    match Cli::parse().command {
        Command::Config(command) => command.run(),
    }
}
