//! The commands of `onlyonce`, one module each.

pub mod config;
pub mod exit;
pub mod migrate;
pub mod send;
pub mod serve;
pub mod sweep;

/// Runs `work` to its end on a runtime of its own.
fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

/// A command about what a store holds does not make one.
fn demand_file(path: &std::path::Path) -> Result<(), String> {
    if path.exists() { Ok(()) } else { Err(format!("{} does not exist", path.display())) }
}
