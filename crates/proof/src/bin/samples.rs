//! One of the sample layers as a server. Usage: samples --layer a|b|c|d|none --executions FILE [--listen ADDRESS]
//! [--redis URL] [--postgres URL] [--sqlite FILE] [--work-ms N] [--raise-every N] [--sweep-every-ms N] [--stale-after-ms N]

use std::process::ExitCode;

use proof::samples::{SampleError, Settings, serve};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    let (settings, listen) = match Settings::read(std::env::args().skip(1)) {
        Ok(read) => read,
        Err(wrong) => {
            eprintln!("samples: {wrong}");
            return ExitCode::from(2);
        }
    };
    match run(settings, &listen).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("samples: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(settings: Settings, listen: &str) -> Result<(), SampleError> {
    let listener = TcpListener::bind(listen).await?;
    println!("ready {}", listener.local_addr()?);
    serve(listener, settings).await
}
