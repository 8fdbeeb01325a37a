//! JSON-RPC and the Model Context Protocol, through the layer of the library.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::time::Duration;

use axum::body::Body;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use onlyonce::Policy;
use onlyonce::policy::Recovery;
use support::{Answer, Guarded};
use tokio::sync::watch;
use tower::ServiceExt;

/// A keyed call of a tool with this id.
fn call(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"charge","_meta":{{"idempotencyKey":"a-key"}}}}}}"#
    )
}

fn post(message: impl Into<Body>) -> Request<Body> {
    let request = Request::post("/mcp").header("content-type", "application/json");
    request.body(message.into()).unwrap()
}

fn events(body: impl Into<Body>) -> Response<Body> {
    let response = Response::builder().header("content-type", "text/event-stream");
    response.header("mcp-session-id", "s-1").body(body.into()).unwrap()
}

/// A service that answers with this stream.
fn streaming(policy: Policy, stream: &'static str) -> Guarded {
    Guarded::new(policy, move |_| async move { events(stream) })
}

async fn ask(guarded: &Guarded, id: &str) -> Answer {
    guarded.send(post(call(id))).await
}

const PROGRESS: &str =
    "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n";

// The service may close the stream before its answer, and the client asks for the rest by GET.
#[tokio::test]
async fn a_stream_that_ends_before_its_answer_leaves_the_outcome_unknown() {
    let half = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"res";
    for stream in ["", "id: 1\nretry: 500\ndata:\n\n", PROGRESS, half] {
        let guarded = streaming(Policy::mcp(), stream);
        let first = ask(&guarded, "1").await;
        assert_eq!((first.status, &first.body[..]), (StatusCode::OK, stream.as_bytes()));
        let again = ask(&guarded, "2").await;
        assert_eq!(again.status, StatusCode::CONFLICT, "{stream}");
        assert_eq!(again.problem(), "idempotency_outcome_unknown");
        assert_eq!(guarded.executions(), 1);
    }
}

#[tokio::test]
async fn a_stream_without_an_answer_is_no_answer_where_unknown_outcomes_fail() {
    let guarded = streaming(Policy::mcp().with_recovery(Recovery::Fail), PROGRESS);
    assert_eq!(ask(&guarded, "1").await.body, PROGRESS);
    let again = ask(&guarded, "2").await;
    assert_eq!((again.status, again.retry().as_str()), (StatusCode::BAD_GATEWAY, "never"));
    assert_eq!(again.problem(), "idempotency_outcome_unknown");
}

#[tokio::test]
async fn an_error_is_an_answer_too() {
    let stream = "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"error\":{\"code\":-32000}}\n\n";
    let guarded = streaming(Policy::mcp(), stream);
    ask(&guarded, "1").await;
    assert!(ask(&guarded, "2").await.is_replay());
}

// As with a cookie: a client that went on in a session of the replay would do so in somebody else's.
#[tokio::test]
async fn a_replay_names_no_session() {
    let guarded = streaming(Policy::mcp(), "data: {\"id\":1,\"result\":{}}\n\n");
    assert_eq!(ask(&guarded, "1").await.headers["mcp-session-id"], "s-1");
    let again = ask(&guarded, "2").await;
    assert!(again.is_replay() && !again.headers.contains_key("mcp-session-id"), "{again:?}");
}

// A client that lost the connection would ask for the rest of a stream that is not its own.
#[tokio::test]
async fn a_replay_names_no_place_in_the_stream_of_another() {
    let answer = "event: message\nid: 2\nretry: 100\ndata: {\"id\":1,\"result\":{}}\n\n";
    let stream: &str = format!("{PROGRESS}{answer}").leak();
    let guarded = streaming(Policy::mcp(), stream);
    assert_eq!(ask(&guarded, "1").await.body, stream);
    let again = ask(&guarded, "\"b\"").await;
    let progress = PROGRESS.strip_prefix("id: 1\n").unwrap();
    let expected = format!("{progress}event: message\ndata: {{\"id\":\"b\",\"result\":{{}}}}\n\n");
    assert_eq!(again.body, expected);
}

#[tokio::test]
async fn an_answer_over_several_lines_gets_the_id_of_its_caller() {
    for end in ["\n", "\r", "\r\n"] {
        let stream = "data: {\"jsonrpc\":\"2.0\",\ndata:  \"id\":1,\ndata:  \"result\":{}}\n\n";
        let stream: &str = stream.replace('\n', end).leak();
        let guarded = streaming(Policy::mcp(), stream);
        ask(&guarded, "1").await;
        let again = ask(&guarded, "22").await;
        assert_eq!(again.body, stream.replace("\"id\":1", "\"id\":22"), "{end:?}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_get_the_id_of_its_caller_is_not_replayed() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#;
    let stream: &str = format!("data: {batch}\n\n").leak();
    for guarded in [
        streaming(Policy::mcp(), stream),
        Guarded::new(Policy::mcp(), move |_| async move { batch }),
    ] {
        assert_eq!(ask(&guarded, "1").await.status, StatusCode::OK);
        let again = ask(&guarded, "2").await;
        assert_eq!(again.status, StatusCode::GONE);
        assert_eq!(again.problem(), "idempotency_response_unavailable");
        assert_eq!(guarded.executions(), 1);
    }
}

// The service waits for what its client says: a stream that is held back until its end would never end.
#[tokio::test]
async fn a_stream_flows_once_the_service_asks_its_client() {
    let question = "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"elicitation/create\",\"params\":{}}\r\n\r\n";
    let answer = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n";
    let (told, was_told) = watch::channel(false);
    let guarded = Guarded::new(Policy::mcp(), move |_| {
        let mut was_told = was_told.clone();
        // In pieces: an event counts once it is whole.
        let (begun, ended) = question.split_at(question.len() - 1);
        let pieces = [PROGRESS, begun, ended].map(Ok::<_, std::io::Error>);
        let rest = async move {
            was_told.wait_for(|told| *told).await.unwrap();
            Ok(answer)
        };
        let body = stream::iter(pieces).chain(stream::once(rest));
        async move { events(Body::from_stream(body)) }
    });
    let asked = guarded.app.clone().oneshot(post(call("1")));
    let response = tokio::time::timeout(Duration::from_secs(10), asked).await;
    let mut body = response.expect("the stream is not held back").unwrap().into_body();
    let mut heard = Vec::new();
    while !heard.ends_with(question.as_bytes()) {
        heard.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    told.send_replace(true);
    heard.extend(body.collect().await.unwrap().to_bytes());
    assert_eq!(heard, [PROGRESS, question, answer].concat().as_bytes());

    let again = ask(&guarded, "2").await;
    assert_eq!(again.problem(), "idempotency_response_unavailable");
    assert_eq!(guarded.executions(), 1);
}

#[tokio::test]
async fn a_batch_with_a_keyed_call_is_refused() {
    let guarded = Guarded::counting(Policy::mcp());
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for batch in [format!("[{ping},{}]", call("2")), format!("[{}]", call("null"))] {
        let refused = guarded.send(post(batch)).await;
        assert_eq!((refused.status, refused.retry().as_str()), (StatusCode::BAD_REQUEST, "never"));
        assert_eq!(refused.problem(), "idempotency_key_invalid");
    }
    assert_eq!(guarded.executions(), 0);
    guarded.send(post(format!("[{ping},{ping}]"))).await;
    assert_eq!(guarded.executions(), 1, "a batch without keys passes");
}

// A notification has no answer that a call could get.
#[tokio::test]
async fn a_call_is_no_retry_of_a_notification() {
    let notification = || post(call("1").replace(r#""id":1,"#, ""));
    let guarded = Guarded::new(Policy::mcp(), |_| async { StatusCode::ACCEPTED });
    assert_eq!(guarded.send(notification()).await.status, StatusCode::ACCEPTED);
    assert!(guarded.send(notification()).await.is_replay());
    let reused = ask(&guarded, "1").await;
    assert_eq!(reused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(guarded.executions(), 1);
}
