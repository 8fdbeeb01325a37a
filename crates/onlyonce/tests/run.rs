//! The same promise without HTTP: consumers and jobs.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce::policy::{InFlight, Recovery};
use onlyonce::scope::Principal;
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Failure, Once, OnceError, Operation, Outcome, Policy};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Parcel {
    number: u32,
    receipt: String,
}

/// Errors of whatever type are passed on with `?`, and say what they are.
#[tokio::test]
async fn errors_of_anyhow_boxes_and_texts_are_unknown() {
    use anyhow::Context;
    let once = once();
    let failed = async |key: &str, failure: fn() -> Result<u8, Failure>| -> String {
        match once.run(operation(key), move |_| async move { failure() }).await.unwrap() {
            Outcome::Unknown { cause: Some(cause), .. } => cause.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let said = failed("anyhow", || Ok("x".parse::<u8>().context("the number of the order")?));
    assert_eq!(said.await, "the number of the order");
    let said = failed("boxed", || Err(Box::<dyn std::error::Error + Send + Sync>::from("boxed"))?);
    assert_eq!(said.await, "boxed");
    assert_eq!(failed("text", || Err("a text")?).await, "a text");
    let refused = once.run(operation("not done"), |_| async {
        Err::<u8, _>(Failure::not_done(anyhow::anyhow!("no stock")))
    });
    assert!(matches!(refused.await, Err(OnceError::NotDone(why)) if why.to_string() == "no stock"));
}

fn once() -> Once {
    Once::new(MemoryStore::new())
}

fn operation(key: &str) -> Operation {
    Operation::new("ship", Principal::of("queue", b"orders"), key).unwrap()
}

fn short(recovery: Recovery) -> Policy {
    Policy::default().with_recovery(recovery).with_upstream_timeout(Duration::from_millis(50))
}

// R134, R135
#[tokio::test]
async fn work_runs_once_and_its_value_is_given_again() {
    let once = once();
    let ship = |attempt: onlyonce::Attempt| async move {
        Ok(Parcel { number: attempt.number, receipt: attempt.derive("receipt") })
    };
    let Outcome::Fresh(first) = once.run(operation("a"), ship).await.unwrap() else { panic!() };
    assert_eq!(once.run(operation("a"), ship).await.unwrap(), Outcome::Replayed(first.clone()));
    let Outcome::Fresh(other) = once.run(operation("b"), ship).await.unwrap() else { panic!() };
    assert_ne!(first.receipt, other.receipt);
    assert_eq!(once.counts().executed, 2);
}

#[tokio::test]
async fn another_payload_with_the_key_is_refused() {
    let once = once();
    let with = |payload: &str| operation("a").with_payload(&payload).unwrap();
    let _ = once.run(with("x"), |_| async { Ok(1) }).await.unwrap();
    assert_eq!(once.run(with("y"), |_| async { Ok(2) }).await.unwrap(), Outcome::Reused);
}

#[tokio::test]
async fn what_was_not_done_may_be_done_again() {
    let once = once();
    let refused =
        once.run(operation("a"), |_| async { Err::<u8, _>(Failure::not_done("no stock")) }).await;
    assert!(matches!(refused, Err(OnceError::NotDone(_))));
    assert_eq!(once.run(operation("a"), |_| async { Ok(1) }).await.unwrap(), Outcome::Fresh(1));
}

// Any error is the safe reading: it may have happened.
#[tokio::test]
async fn what_failed_otherwise_is_unknown_and_not_run_again() {
    let once = once();
    let fails = |_| async {
        let parsed: u8 = "not a number".parse()?;
        Ok(parsed)
    };
    let first = once.run(operation("a"), fails).await.unwrap();
    let Outcome::Unknown { cause: Some(cause), .. } = first else { panic!("{first:?}") };
    assert!(cause.error().is::<std::num::ParseIntError>(), "the caller's own error: {cause}");
    let again = once.run(operation("a"), |_| async { Ok(1) }).await.unwrap();
    assert!(matches!(again, Outcome::Unknown { cause: None, .. }));
    assert_eq!(once.counts().executed, 1);
}

#[tokio::test]
async fn work_that_panics_or_never_ends_is_unknown() {
    let once = once();
    let panics = |_| async {
        assert!(std::env::args().count() > 1_000, "the work panics");
        Ok(1)
    };
    let panicked = once.run(operation("a"), panics).await;
    assert!(matches!(panicked, Ok(Outcome::Unknown { cause: Some(_), .. })));
    let hangs = operation("b").with_policy(short(Recovery::Hold));
    let hung = once.run(hangs, |_| std::future::pending::<Result<u8, Failure>>()).await;
    assert!(matches!(hung, Ok(Outcome::Unknown { cause: Some(_), .. })));
    for key in ["a", "b"] {
        let again = once.run(operation(key), |_| async { Ok(1) }).await.unwrap();
        assert!(matches!(again, Outcome::Unknown { .. }), "{key}");
    }
}

#[tokio::test]
async fn where_failures_are_final_every_later_caller_is_told_so() {
    let once = once();
    let closed = || operation("a").with_policy(short(Recovery::Fail));
    let _ = once.run(closed(), |_| std::future::pending::<Result<u8, Failure>>()).await;
    let again = once.run(closed(), |_| async { Ok(1) }).await;
    assert!(matches!(again, Err(OnceError::GivenUp)));
}

#[tokio::test]
async fn a_redrive_runs_again_as_the_next_attempt_with_the_same_derived_keys() {
    let once = once();
    let within = Duration::from_secs(60);
    let redriven = || operation("a").with_policy(short(Recovery::Redrive { within }));
    let _ =
        once.run(redriven(), |_| std::future::pending::<Result<(u32, String), Failure>>()).await;
    let work =
        |attempt: onlyonce::Attempt| async move { Ok((attempt.number, attempt.derive("x"))) };
    let Outcome::Fresh((number, _)) = once.run(redriven(), work).await.unwrap() else { panic!() };
    assert_eq!(number, 2);
}

#[tokio::test]
async fn a_value_that_is_too_large_is_done_and_not_kept() {
    let once = once();
    let policy = Policy::default().with_response_bytes_max(10);
    let large = || operation("a").with_policy(policy.clone());
    let first = once.run(large(), |_| async { Ok("x".repeat(100)) }).await.unwrap();
    assert_eq!(first, Outcome::Fresh("x".repeat(100)));
    let again = once.run(large(), |_| async { Ok(String::new()) }).await;
    assert!(matches!(again, Err(OnceError::NotKept)));
}

// R55
#[tokio::test]
async fn many_callers_at_once_share_one_execution() {
    let (once, runs) = (once(), Arc::new(AtomicUsize::new(0)));
    let policy = Policy::default().with_in_flight(InFlight::Wait(Duration::from_secs(20)));
    let callers: Vec<_> = (0..200)
        .map(|_| {
            let (once, runs) = (once.clone(), runs.clone());
            let waiting = operation("a").with_policy(policy.clone());
            tokio::spawn(async move {
                once.run(waiting, move |_| async move { Ok(runs.fetch_add(1, Ordering::SeqCst)) })
                    .await
                    .unwrap()
            })
        })
        .collect();
    let mut fresh = 0;
    for caller in callers {
        match caller.await.unwrap() {
            Outcome::Fresh(0) => fresh += 1,
            Outcome::Replayed(0) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((fresh, runs.load(Ordering::SeqCst)), (1, 1));
}

// R90
#[tokio::test]
async fn a_caller_that_leaves_does_not_stop_the_work() {
    let once = once();
    let (begun, mut has_begun) = tokio::sync::watch::channel(false);
    let (go, mut may_go) = tokio::sync::watch::channel(false);
    let caller = {
        let once = once.clone();
        tokio::spawn(async move {
            let work = move |_| async move {
                begun.send_replace(true);
                may_go.wait_for(|go| *go).await?;
                Ok(7)
            };
            once.run(operation("a"), work).await
        })
    };
    has_begun.wait_for(|begun| *begun).await.unwrap();
    caller.abort();
    go.send_replace(true);
    let waiting = Policy::default().with_in_flight(InFlight::Wait(Duration::from_secs(20)));
    let again = once.run(operation("a").with_policy(waiting), |_| async { Ok(8) }).await.unwrap();
    assert_eq!(again, Outcome::Replayed(7));
}

#[tokio::test]
async fn a_retried_batch_runs_only_what_is_left() {
    let once = Once::new(MemoryStore::new());
    let runs = Arc::new(AtomicUsize::new(0));
    let batch =
        Operation::new("payout", Principal::of("key", b"acct_1"), "payouts-of-may").unwrap();
    let pay = |index: usize, amount: u32, is_covered: bool| {
        let (once, runs) = (once.clone(), runs.clone());
        let item = batch.item(index).with_payload(&amount).unwrap();
        async move {
            once.run(item, move |_| async move {
                if !is_covered {
                    return Err(Failure::not_done("not covered"));
                }
                runs.fetch_add(1, Ordering::SeqCst);
                Ok(amount)
            })
            .await
        }
    };
    assert_eq!(pay(0, 10, true).await.unwrap(), Outcome::Fresh(10));
    assert!(matches!(pay(1, 20, false).await, Err(OnceError::NotDone(_))));
    assert_eq!(pay(0, 10, true).await.unwrap(), Outcome::Replayed(10));
    assert_eq!(pay(1, 20, true).await.unwrap(), Outcome::Fresh(20));
    // Another item in the same place, and the same item in another batch.
    assert_eq!(pay(1, 30, true).await.unwrap(), Outcome::Reused);
    let other = Operation::new("payout", Principal::of("key", b"acct_1"), "payouts-of-june");
    let other = once.run(other.unwrap().item(0), |_| async { Ok(10_u32) }).await.unwrap();
    assert_eq!(other, Outcome::Fresh(10));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// Who puts what an operation is about into the name of its kind has a name for each.
// threat K25
#[tokio::test]
async fn kinds_without_end_are_counted_together_above_a_thousand() {
    let once = once();
    for number in 0..3_000 {
        let kind = format!("POST /orders/{number}");
        let operation = Operation::new(&kind, Principal::of("queue", b"orders"), "a").unwrap();
        let done = once.run(operation, |_| async { Ok(1) }).await.unwrap();
        assert_eq!(done, Outcome::Fresh(1));
    }
    let by_route = once.counts_by_route();
    assert_eq!((by_route.len(), once.latencies_by_route().len()), (1_001, 1_001));
    let named = by_route.iter().filter(|(name, _)| name.starts_with("POST /orders/"));
    assert_eq!(named.map(|(_, counts)| counts.executed).sum::<u64>(), 1_000);
    let others = by_route.iter().find(|(name, _)| &**name == "(other routes)").unwrap();
    assert_eq!((others.1.executed, once.counts().executed), (2_000, 3_000));
    // Those that are known stay what they are, and so does what they promise.
    for kind in ["POST /orders/7", "POST /orders/2999"] {
        let operation = Operation::new(kind, Principal::of("queue", b"orders"), "a").unwrap();
        let again = once.run(operation, |_| async { Ok(2) }).await.unwrap();
        assert_eq!(again, Outcome::Replayed(1));
    }
    assert_eq!(once.counts_by_route().len(), 1_001);
}

// threat K25
#[tokio::test]
async fn a_kind_is_one_route_whatever_its_policies() {
    let once = once();
    for number in 0..2_000_u64 {
        let policy = Policy::default()
            .with_route("ship")
            .with_hold_max(Duration::from_secs(number))
            .with_lease(Duration::from_secs(30 + number % 3));
        let operation = operation(&number.to_string()).with_policy(policy);
        let _ = once.run(operation, |_| async { Ok(1) }).await.unwrap();
    }
    let by_route = once.counts_by_route();
    assert_eq!((by_route.len(), by_route[0].1.executed), (1, 2_000));
}
