//! The commands of `onlyonce`, one module each.

mod access;
pub mod audit;
pub mod config;
pub mod doctor;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
pub mod exit;
pub mod keys;
pub mod migrate;
pub mod openapi;
pub mod outbox;
pub mod plan;
pub mod send;
pub mod serve;
pub mod steps;
pub mod sweep;
pub mod tail;
pub mod torture;

/// Prints a text that was made. A reader that has seen enough and closed the pipe is no failure.
pub fn show(text: &str) -> std::process::ExitCode {
    match access::print(text) {
        Ok(_) => std::process::ExitCode::SUCCESS,
        Err(failed) => failed.exit(),
    }
}

/// Runs `work` to its end on a runtime of its own.
fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

/// A command about what a store holds does not make one.
fn demand_file(path: &std::path::Path) -> Result<(), String> {
    if path.exists() { Ok(()) } else { Err(format!("{} does not exist", path.display())) }
}

/// Who gives the command, as far as the machine says.
fn operating_user() -> String {
    let user = std::env::var("USER").ok().filter(|user| !user.trim().is_empty());
    user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}
