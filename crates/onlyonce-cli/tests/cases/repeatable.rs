//! Repeatable Requests of OASIS: the two headers, the window, and the result.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use onlyonce::clock::{Clock, SystemClock};

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, Set};
use crate::reply::{Gate, Reply};
use crate::subject::Kind;
use crate::{B1, B2, K1, K2, on_both, until, within};

on_both! {
    a_repeatable_request_is_executed_once_and_accepted,
    the_headers_of_a_repeatable_request_belong_together,
    outside_its_window_a_free_key_is_rejected,
    what_still_runs_or_is_unknown_was_accepted,
    a_method_that_is_not_guarded_is_not_repeatable,
    elsewhere_the_headers_mean_nothing,
}

const BY_ID: &[Set] = &[Set::KeyFrom(&["header:Repeatability-Request-ID"])];

/// The date that was so many hours ago.
fn ago(hours: i64) -> String {
    let moment = SystemClock.wall().plus_ms(-hours * 3_600_000);
    let moment = Timestamp::from_millisecond(moment.as_ms()).unwrap();
    DateTimePrinter::new().timestamp_to_rfc9110_string(&moment).unwrap()
}

fn repeatable(id: &str, body: &str) -> Ask {
    dated(id, body, &ago(0))
}

fn dated(id: &str, body: &str, first_sent: &str) -> Ask {
    let ask = Ask::post(body).header("Repeatability-Request-ID", id);
    ask.header("Repeatability-First-Sent", first_sent)
}

fn result(answer: &Answer) -> Vec<&str> {
    answer.all("repeatability-result")
}

// R176
async fn a_repeatable_request_is_executed_once_and_accepted(on: Kind) {
    let t = on.start(BY_ID).await;
    let first = t.send(&repeatable(K1, B1)).await.fresh(201);
    assert_eq!(result(&first), ["accepted"]);
    let again = t.send(&repeatable(K1, B1)).await.replays(&first);
    assert_eq!(result(&again), ["accepted"]);
    let other = t.send(&repeatable(K1, B2)).await;
    other.problem(422, "idempotency_key_reused");
    assert_eq!(result(&other), ["rejected"]);
    assert_eq!(t.n(), 1);
}

// R176
async fn the_headers_of_a_repeatable_request_belong_together(on: Kind) {
    let t = on.start(BY_ID).await;
    let wrong = [
        Ask::post(B1).header("Repeatability-Request-ID", K1),
        Ask::post(B1).header("Repeatability-First-Sent", ago(0)),
        dated(K1, B1, "yesterday"),
        dated(K1, B1, "2026-11-17T10:00:00Z"),
        repeatable(K1, B1).header("Repeatability-First-Sent", ago(1)),
        repeatable("", B1),
    ];
    for ask in wrong {
        let refused = t.send(&ask).await;
        refused.problem(400, "idempotency_key_invalid");
        assert_eq!(result(&refused), ["rejected"]);
    }
    assert_eq!(t.n(), 0);
    // Without both it is a request without a key.
    assert_eq!(result(&t.send(&Ask::post(B1)).await.fresh(201)), [""; 0]);
}

// R176, R172
async fn outside_its_window_a_free_key_is_rejected(on: Kind) {
    let t = on.start(BY_ID).await;
    let late = t.send(&dated(K1, B1, &ago(25))).await;
    late.problem(412, "idempotency_key_expired");
    assert_eq!((result(&late), t.n()), (vec!["rejected"], 0));
    let first = t.send(&dated(K1, B1, &ago(23))).await.fresh(201);
    // What is known is answered, however late.
    t.send(&dated(K1, B1, &ago(25))).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// R176
async fn what_still_runs_or_is_unknown_was_accepted(on: Kind) {
    let t = Arc::new(on.start(BY_ID).await);
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate), Reply::reset()]);
    let running = tokio::spawn({
        let t = t.clone();
        async move { t.send(&repeatable(K1, B1)).await }
    });
    until("the first runs", || t.n() == 1).await;
    let busy = t.send(&repeatable(K1, B1)).await;
    busy.problem(409, "idempotency_in_progress");
    assert_eq!(result(&busy), ["accepted"]);
    gate.open();
    assert_eq!(result(&within("its answer", running).await.unwrap()), ["accepted"]);
    for status in [502, 409] {
        let unknown = t.send(&repeatable(K2, B1)).await;
        unknown.problem(status, "idempotency_outcome_unknown");
        assert_eq!(result(&unknown), ["accepted"]);
    }
}

// R176
async fn a_method_that_is_not_guarded_is_not_repeatable(on: Kind) {
    let t = on.start(BY_ID).await;
    let unsupported = t.send(&repeatable(K1, B1).method("PUT")).await;
    unsupported.problem(501, "repeatability_unsupported");
    assert_eq!((result(&unsupported), t.n()), (vec!["rejected"], 0));
    let read = t.send(&repeatable(K1, "").method("GET")).await.fresh(200);
    assert_eq!(result(&read), [""; 0]);
}

async fn elsewhere_the_headers_mean_nothing(on: Kind) {
    let t = on.start(D).await;
    let ask = dated("1", B1, "yesterday").key(K1);
    let first = t.send(&ask).await.fresh(201);
    assert_eq!(result(&first), [""; 0]);
    t.send(&ask).await.replays(&first);
}
