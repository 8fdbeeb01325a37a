//! What a route does about unknown outcomes, from the failure to the last answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use onlyonce::Policy;
use onlyonce::http::{IDEMPOTENCY_ATTEMPT, NotSent};
use onlyonce::policy::Recovery;
use onlyonce::record::StateKind;

use crate::faults::app::{Handler, created};
use crate::faults::lab::{Lab, limits};
use crate::faults::{until, until_state};

// R88
#[tokio::test]
async fn recovery_fail_makes_the_failure_the_final_answer() {
    let lab = Lab::with(fails_once(), policy(Recovery::Fail));
    let first = lab.send(KEY).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    assert_eq!(first.member("retry"), "never");
    for _ in 0..2 {
        lab.send(KEY).await.assert_replay_of(&first);
    }
    assert_eq!(lab.executed(), 1);
}

// R88
#[tokio::test]
async fn recovery_fail_closes_what_a_dead_owner_left() {
    let lab = left_by_the_dead(policy(Recovery::Fail)).await;
    let retry = lab.send(KEY).await;
    assert!(retry.is_replay());
    retry.assert_problem(502, "idempotency_outcome_unknown");
    assert_eq!(retry.member("retry"), "never");
    assert_eq!(lab.executed(), 1);
}

// R88
#[tokio::test]
async fn recovery_release_runs_a_retry_again() {
    let lab = Lab::with(fails_once(), policy(Recovery::Release));
    let first = lab.send(KEY).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    let second = lab.send(KEY).await;
    assert!(second.is_fresh());
    lab.send(KEY).await.assert_replay_of(&second);
    assert_eq!(lab.executed(), 2);
}

// R88
#[tokio::test]
async fn recovery_release_waits_until_a_dead_owner_can_no_longer_be_sending() {
    let lab = left_by_the_dead(policy(Recovery::Release)).await;
    lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    assert_eq!(lab.executed(), 1);
    lab.clock.pass(QUIET);
    let second = lab.send(KEY).await;
    assert_eq!((second.status, &second.body[..]), (201, &b"attempt 2"[..]));
    lab.send(KEY).await.assert_replay_of(&second);
    assert_eq!(lab.executed(), 2);
}

// R88
#[tokio::test]
async fn recovery_redrive_sends_a_retry_on_with_the_number_of_the_attempt() {
    let within = Duration::from_secs(60 * 60);
    let lab = Lab::with(fails_once(), policy(Recovery::Redrive { within }));
    let first = lab.send(KEY).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    let second = lab.send(KEY).await;
    assert_eq!((second.status, &second.body[..]), (201, &b"attempt 2"[..]));
    assert!(second.is_fresh());
    lab.send(KEY).await.assert_replay_of(&second);
    assert_eq!(lab.executed(), 2);
}

// The second attempt was not sent; the first may have been executed all the same.
#[tokio::test]
async fn a_redrive_that_is_not_sent_says_that_the_outcome_is_unknown() {
    let calls = AtomicUsize::new(0);
    let handler = Handler::new(move |_| {
        let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match is_first {
                true => Err("reset".into()),
                false => Ok(not_sent()),
            }
        }
    });
    let within = Duration::from_secs(60 * 60);
    let lab = Lab::with(handler, policy(Recovery::Redrive { within }));
    lab.send(KEY).await.assert_problem(502, "idempotency_outcome_unknown");
    for _ in 0..2 {
        lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    }
    assert_eq!(lab.executed(), 3, "each retry was tried");
}

// R88
#[tokio::test]
async fn recovery_redrive_holds_once_its_time_is_over() {
    let within = Duration::from_secs(60 * 60);
    let lab = Lab::with(fails_once(), policy(Recovery::Redrive { within }));
    lab.send(KEY).await;
    lab.clock.pass(within);
    lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    assert_eq!(lab.executed(), 1);
}

// R87, R88
#[tokio::test]
async fn an_outcome_held_for_too_long_is_closed_and_never_run_again() {
    let held = policy(Recovery::Hold)
        .with_ttl(Duration::from_secs(60))
        .with_hold_max(Duration::from_secs(120));
    let sweeping = limits().with_sweep(Duration::from_millis(5), 100);
    let lab = Lab::bounded(fails_once(), held, sweeping);
    lab.send(KEY).await.assert_problem(502, "idempotency_outcome_unknown");
    lab.clock.pass(Duration::from_secs(100));
    lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    lab.clock.pass(Duration::from_secs(21));
    until_state(&lab.memory, Some(StateKind::Completed)).await;
    let retry = lab.send(KEY).await;
    assert!(retry.is_replay());
    retry.assert_problem(502, "idempotency_outcome_unknown");
    assert_eq!(retry.member("retry"), "never");
    assert_eq!(lab.executed(), 1);
}

/// The answer of a service that passes requests on, and could not send this one.
fn not_sent() -> http::Response<crate::faults::app::AnswerBody> {
    let status = http::StatusCode::SERVICE_UNAVAILABLE;
    let mut response = crate::faults::app::answered(status, "not sent");
    response.extensions_mut().insert(NotSent);
    response
}

/// A node on whose store a dead process left an unknown outcome.
async fn left_by_the_dead(policy: Policy) -> Lab {
    let lab = Lab::with(hangs_once(), policy);
    let dying = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let app = lab.app.clone();
    dying.spawn(
        async move { crate::faults::app::send(&app, crate::faults::app::charge(KEY)).await },
    );
    until("the handler to be called", || async { lab.executed() == 1 }).await;
    dying.shutdown_background();
    until_state(&lab.memory, Some(StateKind::Unknown)).await;
    lab
}

/// Its first call fails after it was sent.
fn fails_once() -> Handler {
    first_then_attempt(|| async { Err("reset".into()) })
}

/// Its first call never ends.
fn hangs_once() -> Handler {
    first_then_attempt(std::future::pending)
}

fn first_then_attempt<F>(first: impl Fn() -> F + Clone + Send + Sync + 'static) -> Handler
where
    F: Future<Output = crate::faults::app::Answer> + Send,
{
    let calls = AtomicUsize::new(0);
    Handler::new(move |request| {
        let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        let first = first.clone();
        async move {
            if is_first {
                return first().await;
            }
            let attempt = request.headers().get(IDEMPOTENCY_ATTEMPT);
            let attempt = attempt.map_or("none", |n| HeaderValue::to_str(n).expect("a number"));
            Ok(created(format!("attempt {attempt}")))
        }
    })
}

fn policy(recovery: Recovery) -> Policy {
    Policy::default().with_recovery(recovery)
}

const KEY: &str = "order-4711";
/// Lease and upstream timeout of the default policy, and a little.
const QUIET: Duration = Duration::from_secs(61);
