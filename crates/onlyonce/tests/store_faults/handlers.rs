//! Handlers that panic, fail, break off or never answer.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use onlyonce::Policy;
use onlyonce::http::NotSent;
use onlyonce::record::StateKind;

use crate::faults::app::{Handler, answered};
use crate::faults::lab::{Lab, limits};
use crate::faults::{record, soon, until_state};

// threat A11, R87, R89
#[tokio::test]
async fn a_handler_that_panics_leaves_an_unknown_outcome() {
    stays_unknown(Handler::new(|_| async { panic!("in the future") }), 502).await;
    stays_unknown(Handler::new(|_| -> std::future::Ready<_> { panic!("in the call") }), 502).await;
}

// R87
#[tokio::test]
async fn a_service_that_fails_leaves_an_unknown_outcome() {
    stays_unknown(Handler::new(|_| async { Err("reset".into()) }), 502).await;
}

// R87
#[tokio::test]
async fn an_answer_that_breaks_off_leaves_an_unknown_outcome() {
    let handler = Handler::new(|_| async {
        let frames = [Ok(Frame::data(Bytes::from("half of"))), Err("reset".into())];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        Ok(Response::new(body.boxed_unsync()))
    });
    stays_unknown(handler, 502).await;
}

// threat A12, R87
#[tokio::test]
async fn a_handler_that_never_answers_is_given_up_in_time() {
    stays_unknown(Handler::new(|_| std::future::pending()), 504).await;
}

#[tokio::test]
async fn a_handler_without_a_bound_is_called_all_the_same() {
    let endless = Policy::default().with_upstream_timeout(Duration::MAX);
    let lab = Lab::new(endless);
    assert!(lab.send(KEY).await.is_fresh());
    assert!(lab.send(KEY).await.is_replay());
}

// R86
#[tokio::test]
async fn an_answer_that_proves_that_nothing_was_sent_frees_the_key() {
    let handler = Handler::new(|_| async {
        let mut response = answered(StatusCode::SERVICE_UNAVAILABLE, "no connection");
        response.extensions_mut().insert(NotSent);
        Ok(response)
    });
    let lab = Lab::with(handler, Policy::default());
    assert_eq!(lab.send(KEY).await.status, 503);
    assert_eq!(record(&lab.memory).await, None);
    assert_eq!(lab.send(KEY).await.status, 503);
    assert_eq!((lab.executed(), lab.once.counts().released), (2, 2));
}

/// The first caller is told `status`, every retry 409, and the handler's place is free again.
async fn stays_unknown(handler: Handler, status: u16) {
    let policy = Policy::default().with_upstream_timeout(Duration::from_millis(200));
    let one_place = limits().with_executing_max(1);
    let lab = Lab::bounded(handler, policy, one_place);
    let first = soon("the first caller", lab.send(KEY)).await;
    first.assert_problem(status, "idempotency_outcome_unknown");
    assert_eq!(first.member("retry"), "same-key");
    until_state(&lab.memory, Some(StateKind::Unknown)).await;
    let retry = crate::faults::app::retry_until_ended(&lab.app, KEY).await;
    if retry.status != 503 {
        retry.assert_problem(409, "idempotency_outcome_unknown");
    }
    assert_eq!(lab.executed(), 1);
    let has_place = async {
        while lab.send(KEY).await.status == 503 {
            tokio::task::yield_now().await;
        }
    };
    soon("the place", has_place).await;
    lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
}

const KEY: &str = "order-4711";
