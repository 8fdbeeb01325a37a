//! Answers that are too large to keep, and readers that are slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use onlyonce::Policy;
use tower_service::Service;

use crate::faults::app::{Handler, charge};
use crate::faults::lab::{Lab, limits};
use crate::faults::until;

// R79
#[tokio::test]
async fn a_large_answer_reaches_its_first_caller_whole_and_is_never_executed_again() {
    let (lab, _) = large(Duration::from_secs(30));
    let first = lab.send(KEY).await;
    assert_eq!(first.body.len(), FRAMES * FRAME.len());
    let retry = lab.send(KEY).await;
    retry.assert_problem(410, "idempotency_response_unavailable");
    assert_eq!(lab.executed(), 1);
}

/// Without an error at its end, a part of the answer would pass for the whole.
// threat A12, R79
#[tokio::test]
async fn a_reader_that_was_too_slow_never_takes_a_part_for_the_whole() {
    let (lab, made) = large(Duration::from_millis(200));
    let response = lab.app.clone().call(charge(KEY)).await.expect("an answer");
    until("the rest to be read for nobody", || async { made.load(Ordering::SeqCst) == FRAMES })
        .await;
    let read = response.into_body().collect().await;
    assert!(read.is_err(), "a part of the answer");
    let retry = lab.send(KEY).await;
    retry.assert_problem(410, "idempotency_response_unavailable");
}

// threat A11, R79
#[tokio::test]
async fn a_stream_that_panics_never_ends_as_if_it_were_whole() {
    let handler = Handler::new(|_| async {
        let frames = stream::iter(0..FRAMES).map(|number| {
            assert!(number < 3, "in the middle of the answer");
            Ok(Frame::data(Bytes::from_static(FRAME)))
        });
        Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
    });
    let lab = Lab::with(handler, Policy::default().with_response_bytes_max(FRAME.len()));
    let response = lab.app.clone().call(charge(KEY)).await.expect("an answer");
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(lab.executed(), 1);
}

/// A node whose answers are too large to keep, and how many frames of them were made.
fn large(idle: Duration) -> (Lab, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let handler = Handler::new(move |_| {
        let made = counted.clone();
        async move {
            let frames = stream::iter(0..FRAMES).map(move |_| {
                made.fetch_add(1, Ordering::SeqCst);
                Ok(Frame::data(Bytes::from_static(FRAME)))
            });
            Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
        }
    });
    let policy = Policy::default().with_response_bytes_max(FRAME.len()).with_upstream_timeout(idle);
    (Lab::bounded(handler, policy, limits()), made)
}

const KEY: &str = "order-4711";
const FRAME: &[u8] = b"0123456789";
const FRAMES: usize = 100;
