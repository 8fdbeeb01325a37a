//! Steps behind an HTTP service: whose operation a request is about, and what its client gets.

use http::header::{self, HeaderValue};
use http::request::{Builder, Parts};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use onlyonce::Policy;
use onlyonce::scope::{Principal, ScopePart};
use onlyonce::steps::{HttpSteps, Run, Steps};
use onlyonce::transaction::Reply;

use crate::lab::{Lab, Shop, on_both};

on_both! {
    each_caller_has_operations_of_its_own;
    without_the_principal_in_the_scope_a_key_is_one_operation;
    the_same_key_for_another_resource_is_refused;
    a_replay_has_no_cookie_of_the_first_caller;
    who_cannot_be_told_apart_is_refused;
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }
}

async fn charges<S: Shop>(lab: &Lab, policy: Policy) -> HttpSteps<S, u32> {
    let steps = Steps::new("charge", |run: Run<S>, amount: u32| async move {
        run.finish(async |mut tx| {
            S::effect(&mut tx, "charged").await?;
            let reply = Reply::new(StatusCode::CREATED, amount.to_string());
            Ok(reply.with_header(header::SET_COOKIE, HeaderValue::from_static("who=ann")))
        })
        .await
    });
    steps.over_http(S::connect(&lab.address).await, caller, policy)
}

fn caller(head: &Parts) -> Option<Principal> {
    let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
    Some(Principal::of("api-key", api_key.as_bytes()))
}

async fn post<S: Shop>(charges: &HttpSteps<S, u32>, caller: &str, path: &str) -> Answer {
    send(charges, caller, Request::post(path)).await
}

async fn send<S: Shop>(charges: &HttpSteps<S, u32>, caller: &str, request: Builder) -> Answer {
    let request = request.header("idempotency-key", "charge-4711-of-the-order");
    let (head, ()) = request.header("x-api-key", caller).body(()).unwrap().into_parts();
    let (head, body) = charges.answer(&head, &7998).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Answer { status: head.status, headers: head.headers, body }
}

// R24, R31
async fn each_caller_has_operations_of_its_own<S: Shop>(lab: Lab) {
    let charges = charges::<S>(&lab, Policy::payments()).await;
    for (caller, path) in [("ann", "/a"), ("bob", "/a"), ("ann", "/b")] {
        let first = post(&charges, caller, path).await;
        assert_eq!((first.status.as_u16(), first.is_replay()), (201, false), "{caller} {path}");
        assert!(post(&charges, caller, path).await.is_replay());
    }
    assert_eq!(lab.effects(), "charged|3");
}

/// A caller whose credential is another at the retry, on a route whose keys are unique by themselves.
async fn without_the_principal_in_the_scope_a_key_is_one_operation<S: Shop>(lab: Lab) {
    let policy = Policy::payments().with_scope([ScopePart::Method, ScopePart::Path]);
    let charges = charges::<S>(&lab, policy).await;
    assert!(!post(&charges, "an old token", "/charges").await.is_replay());
    let again = post(&charges, "a new token", "/charges").await;
    assert_eq!((again.is_replay(), again.body.as_str()), (true, "7998"));
    assert_eq!(lab.effects(), "charged|1");
}

/// Where neither the path nor the method is in the scope.
async fn the_same_key_for_another_resource_is_refused<S: Shop>(lab: Lab) {
    let policy = Policy::payments().with_scope([ScopePart::Principal]);
    let charges = charges::<S>(&lab, policy).await;
    assert_eq!(post(&charges, "ann", "/charges?to=1").await.status.as_u16(), 201);
    assert!(post(&charges, "ann", "/charges?to=1").await.is_replay());
    for path in ["/refunds?to=1", "/charges?to=2", "/charges"] {
        assert_eq!(post(&charges, "ann", path).await.status.as_u16(), 422, "{path}");
    }
    let delete = Request::post("/charges?to=1").header("x-http-method-override", "DELETE");
    for request in [delete, Request::put("/charges?to=1")] {
        assert_eq!(send(&charges, "ann", request).await.status.as_u16(), 422);
    }
    assert_eq!(lab.effects(), "charged|1");
}

async fn a_replay_has_no_cookie_of_the_first_caller<S: Shop>(lab: Lab) {
    let charges = charges::<S>(&lab, Policy::payments()).await;
    let cookie = |answer: Answer| answer.headers.contains_key(header::SET_COOKIE);
    assert!(cookie(post(&charges, "ann", "/charges").await));
    assert!(!cookie(post(&charges, "ann", "/charges").await));
}

async fn who_cannot_be_told_apart_is_refused<S: Shop>(lab: Lab) {
    let charges = charges::<S>(&lab, Policy::payments()).await;
    assert_eq!(post(&charges, "", "/charges").await.status.as_u16(), 401);
    assert_eq!(lab.effects(), "");
}
