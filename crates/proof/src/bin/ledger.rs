//! A payments service that can be killed. Usage: ledger FOLDER

use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or("usage: ledger FOLDER")?;
    proof::ledger::serve(folder).await
}
