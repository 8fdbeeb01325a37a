//! The command `onlyonce`.

use clap::Parser;

/// Make the second request harmless.
#[derive(Debug, Parser)]
#[command(name = "onlyonce", version, arg_required_else_help = true)]
struct Cli {}

fn main() {
    Cli::parse();
}
