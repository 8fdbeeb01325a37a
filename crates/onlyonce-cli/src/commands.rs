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
