//! The command `onlyonce`.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onlyonce_cli::commands::config::ConfigCommand;
use onlyonce_cli::commands::migrate::Migrate;
use onlyonce_cli::commands::send::Send;
use onlyonce_cli::commands::serve::Serve;
use onlyonce_cli::commands::sweep::Sweep;
use onlyonce_cli::demo::Demo;

/// Every request is many small allocations, and what one thread allocates another often frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Make the second request harmless.
///
/// A client sends a request, the answer is lost, it sends again. Onlyonce passes it on at most once and gives
/// every retry the first answer. Begin with `onlyonce demo`.
#[derive(Debug, Parser)]
#[command(name = "onlyonce", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(Demo),
    Serve(Box<Serve>),
    Send(Box<Send>),
    Migrate(Migrate),
    Sweep(Sweep),
    /// Check a configuration, or print the default one
    #[command(subcommand)]
    Config(ConfigCommand),
}

fn main() -> io::Result<ExitCode> {
    match Cli::parse().command {
        Command::Demo(demo) => Ok(demo.run()),
        Command::Serve(serve) => Ok(serve.run()),
        Command::Migrate(migrate) => Ok(migrate.run()),
        Command::Sweep(sweep) => Ok(sweep.run()),
        Command::Send(send) => Ok(send.run()),
        Command::Config(command) => command.run(),
    }
}
