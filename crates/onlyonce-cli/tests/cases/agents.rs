//! Agents: JSON-RPC and the Model Context Protocol, whose retries have an id of their own.

use crate::client::Ask;
use crate::on_both;
use crate::profile::Set;
use crate::python::Program;
use crate::reply::Reply;
use crate::subject::Kind;
use crate::upstream::Upstream;

on_both! {
    a_retry_with_another_id_gets_the_first_result_under_its_own,
    an_event_stream_is_kept_and_gets_the_id_too,
    messages_without_a_key_pass,
}

/// A call of a tool with this id, key and amount.
fn call(id: &str, key: &str, amount: u32) -> Ask {
    let meta = format!(r#"{{"idempotencyKey":"{key}","progressToken":{id}}}"#);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"charge","arguments":{{"amount":{amount}}},"_meta":{meta}}}}}"#
    );
    Ask::post(body)
}

fn result(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"charge 1"}}]}}}}"#
    )
}

async fn a_retry_with_another_id_gets_the_first_result_under_its_own(on: Kind) {
    let t = on.start(&[Set::Mcp]).await;
    t.u.plan("/t", [json(&result("1"))]);
    let first = t.send(&call("1", "a-key", 7)).await.fresh(200);
    assert_eq!(first.body, result("1"));
    for id in ["2", "\"three\""] {
        let again = t.send(&call(id, "a-key", 7)).await;
        assert_eq!((again.status, again.all("idempotent-replayed")), (200, vec!["true"]));
        assert_eq!(again.body, result(id));
        assert_eq!(again.all("content-length"), [again.body.len().to_string()]);
    }
    t.send(&call("4", "a-key", 8)).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.n(), 1);
}

async fn an_event_stream_is_kept_and_gets_the_id_too(on: Kind) {
    let t = on.start(&[Set::Mcp]).await;
    let stream = |id: &str| format!("event: message\ndata: {}\n\n", result(id));
    let reply = Reply::status(200).header("Content-Type", "text/event-stream");
    t.u.plan("/t", [reply.body(stream("1").into_bytes())]);
    assert_eq!(t.send(&call("1", "a-key", 7)).await.fresh(200).body, stream("1"));
    assert_eq!(t.send(&call("2", "a-key", 7)).await.body, stream("2"));
    assert_eq!(t.n(), 1);
}

async fn messages_without_a_key_pass(on: Kind) {
    let t = on.start(&[Set::Mcp]).await;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for count in 1..=2 {
        t.send(&Ask::post(notification)).await.fresh(201);
        assert_eq!(t.n(), count);
    }
}

fn json(text: &str) -> Reply {
    Reply::status(200).header("Content-Type", "application/json").body(text.as_bytes().to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_client_that_retries_in_a_new_session_gets_the_first_result() {
    let Some(program) = Program::find("agents_mcp.py", "mcp.server.mcpserver") else { return };
    let (_service, port) = program.serve().await;
    let url = format!("http://127.0.0.1:{port}");
    let route = Set::Toml("[[route]]\nmatch = \"POST /mcp\"\npreset = \"mcp\"");
    let t = Kind::Gateway.start_at(&url, Upstream::closed().await, &[route]).await;
    let results = program.call(&format!("http://{}/mcp", t.address())).await;
    assert_eq!(results, ["charge 1 of 7998"; 3]);
}
