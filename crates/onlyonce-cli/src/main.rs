//! The command `onlyonce`.

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use onlyonce_cli::commands::audit::Audit;
use onlyonce_cli::commands::config::ConfigCommand;
use onlyonce_cli::commands::doctor::Doctor;
#[cfg(feature = "dynamodb")]
use onlyonce_cli::commands::dynamodb::DynamoDb;
use onlyonce_cli::commands::keys::Keys;
use onlyonce_cli::commands::migrate::Migrate;
use onlyonce_cli::commands::openapi::OpenapiCommand;
use onlyonce_cli::commands::outbox::Outbox;
use onlyonce_cli::commands::plan::Plan;
use onlyonce_cli::commands::send::Send;
use onlyonce_cli::commands::serve::Serve;
use onlyonce_cli::commands::show;
use onlyonce_cli::commands::steps::StepsCommand;
use onlyonce_cli::commands::sweep::Sweep;
use onlyonce_cli::commands::tail::Tail;
use onlyonce_cli::commands::torture::Torture;
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
    Keys(Keys),
    Steps(StepsCommand),
    Tail(Tail),
    Migrate(Migrate),
    Sweep(Sweep),
    Audit(Audit),
    Outbox(Outbox),
    Doctor(Doctor),
    Plan(Plan),
    /// Describe the table that a store in DynamoDB needs
    #[cfg(feature = "dynamodb")]
    #[command(subcommand, name = "dynamodb")]
    DynamoDb(DynamoDb),
    Torture(Box<Torture>),
    /// Print a script that completes this command in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
    /// Check a configuration, or print the default one
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Describe the routes for generators of clients
    #[command(subcommand)]
    Openapi(OpenapiCommand),
}

fn main() -> io::Result<ExitCode> {
    match Cli::parse().command {
        Command::Demo(demo) => Ok(demo.run()),
        Command::Serve(serve) => Ok(serve.run()),
        Command::Keys(keys) => Ok(keys.run()),
        Command::Steps(steps) => Ok(steps.run()),
        Command::Tail(tail) => Ok(tail.run()),
        Command::Migrate(migrate) => Ok(migrate.run()),
        Command::Sweep(sweep) => Ok(sweep.run()),
        Command::Audit(audit) => Ok(audit.run()),
        Command::Outbox(outbox) => Ok(outbox.run()),
        Command::Doctor(doctor) => Ok(doctor.run()),
        Command::Plan(plan) => Ok(plan.run()),
        #[cfg(feature = "dynamodb")]
        Command::DynamoDb(dynamodb) => Ok(dynamodb.run()),
        Command::Torture(torture) => Ok(torture.run()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "onlyonce", &mut script);
            Ok(show(&String::from_utf8_lossy(&script)))
        }
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            Ok(show(&String::from_utf8_lossy(&page)))
        }
        Command::Send(send) => Ok(send.run()),
        Command::Config(command) => command.run(),
        Command::Openapi(openapi) => openapi.run(),
    }
}
