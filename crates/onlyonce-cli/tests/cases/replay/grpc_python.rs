//! gRPC with grpcio on both sides of the gateway.

use crate::profile::Set;
use crate::python::Program;
use crate::subject::Kind;
use crate::upstream::Upstream;

// R77; REP-23
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpcio_is_served() {
    let Some(program) = Program::find("replay/grpc_python.py", "grpc") else { return };
    let (_service, port) = program.serve().await;
    let url = format!("h2c://127.0.0.1:{port}");
    let t = Kind::Gateway.start_at(&url, Upstream::closed().await, &[Set::Toml(ROUTE)]).await;
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
    assert_eq!(program.call(&t.address().to_string()).await, expected);
}

const ROUTE: &str = "[[route]]\nmatch = \"POST /pay.Pay/Charge\"\nkey = \"required\"";
