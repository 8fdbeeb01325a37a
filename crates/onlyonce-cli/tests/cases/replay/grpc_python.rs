//! gRPC with grpcio on both sides of the gateway.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::profile::Set;
use crate::subject::Kind;
use crate::upstream::Upstream;
use crate::within;

mod gateway_alone {
    // R77; REP-23
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn grpcio_is_served() {
        super::grpcio_is_served().await;
    }
}

fn python() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let python = target.join("languages/python/bin/python");
    let found = std::process::Command::new(&python).args(["-c", "import grpc"]).output();
    found.is_ok_and(|output| output.status.success()).then_some(python)
}

fn script(python: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(python);
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/replay/grpc_python.py");
    command.arg(program).args(arguments).kill_on_drop(true);
    command
}

async fn grpcio_is_served() {
    let Some(python) = python() else {
        println!("SKIPPED: grpcio is not installed; scripts/test installs it");
        return;
    };
    let mut service = script(&python, &["serve"]);
    let mut service = service.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(service.stdout.take().unwrap()).lines();
    let port = within("its port", lines.next_line()).await.unwrap().unwrap();
    let url = format!("h2c://127.0.0.1:{port}");
    let t = Kind::Gateway.start_at(&url, Upstream::closed().await, &[Set::Toml(ROUTE)]).await;
    let calls = script(&python, &["call", &t.address().to_string()]).output();
    let output = within("the calls", calls).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = [
        "OK charge 1 1",
        "OK charge 1 1",
        "FAILED_PRECONDITION True None",
        // The service's own refusal, and the same once more.
        "FAILED_PRECONDITION False 2",
        "FAILED_PRECONDITION False 2",
        "INVALID_ARGUMENT True None",
        // A stream without a key passes.
        "A B",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{why}");
}

const ROUTE: &str = "[[route]]\nmatch = \"POST /pay.Pay/Charge\"\nkey = \"required\"";
