//! Calls that fail, keys, and work that ends its transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use onlyonce::scope::OperationId;
use onlyonce::steps::{CallAgain, PgDatabase, Run, Steps, StepsError, StepsOutcome};
use onlyonce::transaction::Reply;
use onlyonce::{Failure, steps::StepsState};
use sqlx::Connection;
use tokio::sync::Notify;

use crate::lab::{Lab, Shop, answered, on_both, operation};
use crate::provider::Provider;
use crate::shop::{ORDER, World, order};

on_both! {
    a_call_gets_a_key_that_is_derived_and_never_the_clients;
    a_call_that_fails_is_made_again_after_a_pause;
    a_call_that_must_not_be_repeated_is_made_again_only_if_it_was_not_done;
    a_program_that_runs_too_long_is_stopped;
    too_much_memory_is_refused;
    a_program_that_ignores_an_error_does_not_go_on;
    work_that_commits_by_itself_leaves_the_operation_unknown;
    work_that_fails_is_rolled_back_and_done_again;
}

// R134, R135
async fn a_call_gets_a_key_that_is_derived_and_never_the_clients<S: Shop>(lab: Lab) {
    let provider = Provider::start();
    let shop = S::connect(&lab.address).await;
    let steps = order::<S>(World::new(provider.address));
    answered(&steps, &shop, "client-key", &ORDER).await;
    let id: OperationId = lab.sql("SELECT id FROM {steps}").parse().unwrap();
    assert_eq!(provider.keys("card"), [id.derive("card charged")]);
    assert_eq!(provider.keys("mail"), [id.derive("mail sent")]);
    assert_ne!(id.derive("card charged"), id.derive("mail sent"));
    answered(&steps, &shop, "other-key", &ORDER).await;
    assert_eq!(provider.effects("card"), 2);
}

/// Calls once, by `call` or `call_once`; the failures are of the first calls.
fn failing<S: Shop>(
    is_repeatable: bool,
    failures: fn(usize) -> Result<(), Failure>,
) -> (Steps<S, u32>, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let steps = Steps::new("failing", move |mut run: Run<S>, _: u32| {
        let calls = counted.clone();
        async move {
            let call = async |_| failures(calls.fetch_add(1, Ordering::SeqCst));
            match is_repeatable {
                true => run.call("called", call).await?,
                false => run.call_once("called", call).await?,
            }
            run.finish(async |mut tx| {
                S::effect(&mut tx, "done").await?;
                Ok(Reply::new(StatusCode::OK, ""))
            })
            .await
        }
    });
    (steps, calls)
}

fn timed_out() -> Failure {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

async fn a_call_that_fails_is_made_again_after_a_pause<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let (steps, calls) =
        failing::<S>(true, |call| if call < 2 { Err(timed_out()) } else { Ok(()) });
    let steps = steps.with_retry_pause(Duration::from_secs(60));
    for attempt in 1..=2 {
        let failed = steps.run(&shop, &operation("k"), &1).await.unwrap_err();
        assert!(matches!(failed, StepsError::Failed { .. }), "{failed:?}");
        let early = steps.run(&shop, &operation("k"), &1).await.unwrap();
        assert!(matches!(early, StepsOutcome::InProgress { .. }), "{early:?}");
        assert_eq!(calls.load(Ordering::SeqCst), attempt);
        let row = lab.sql("SELECT state, attempts, error FROM {steps}");
        assert_eq!(row, format!("waiting|{attempt}|timed out"));
        lab.let_time_pass();
    }
    assert!(matches!(steps.run(&shop, &operation("k"), &1).await.unwrap(), StepsOutcome::Done(_)));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

// R133
async fn a_call_that_must_not_be_repeated_is_made_again_only_if_it_was_not_done<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let (steps, calls) = failing::<S>(false, |call| match call {
        0 => Err(Failure::not_done("the connection was refused")),
        _ => Err(timed_out()),
    });
    let steps = steps.with_retry_pause(Duration::ZERO);
    let refused = steps.run(&shop, &operation("k"), &1).await.unwrap_err();
    assert!(matches!(refused, StepsError::Failed { .. }), "{refused:?}");
    assert_eq!(lab.sql("SELECT state, coalesce(calling, '-') FROM {steps}"), "waiting|-");
    lab.let_time_pass();
    for _ in 0..3 {
        let unknown = steps.run(&shop, &operation("k"), &1).await.unwrap();
        assert!(matches!(&unknown, StepsOutcome::Unknown { error, .. } if error == "timed out"));
        lab.let_time_pass();
    }
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    assert_eq!(lab.sql("SELECT state, calling FROM {steps}"), "unknown|called");
    assert_eq!(StepsState::Unknown.name(), "unknown");
}

async fn a_program_that_runs_too_long_is_stopped<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    for (key, is_repeatable, state) in [("repeatable", true, "waiting"), ("once", false, "unknown")]
    {
        let steps = Steps::new("hanging", move |mut run: Run<S>, _: u32| async move {
            let hang = async |_| std::future::pending::<Result<(), Failure>>().await;
            match is_repeatable {
                true => run.call("hangs", hang).await?,
                false => run.call_once("hangs", hang).await?,
            }
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        });
        let steps = steps.with_attempt_max(Duration::from_millis(50));
        let _ = steps.run(&shop, &operation(key), &1).await;
        assert_eq!(lab.sql(&format!("SELECT state FROM {{steps}} WHERE key = '{key}'")), state);
    }
}

async fn too_much_memory_is_refused<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let steps = Steps::new("large", async |mut run: Run<S>, bytes: String| {
        let length = bytes.len();
        run.step("large", async |mut tx| {
            S::effect(&mut tx, "large").await?;
            Ok("x".repeat(length))
        })
        .await?;
        run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
    });
    let (most, more) = ("x".repeat((64 << 10) - 2), "x".repeat((64 << 10) - 1));
    answered(&steps, &shop, "most", &most).await;
    let failed = steps.run(&shop, &operation("more"), &more).await.unwrap_err();
    assert!(matches!(failed, StepsError::Failed { .. }), "{failed:?}");
    assert_eq!(lab.effects(), "large|1");
    let request = "x".repeat(1 << 20);
    let refused = steps.run(&shop, &operation("request"), &request).await.unwrap_err();
    assert!(matches!(refused, StepsError::Request(_)), "{refused:?}");
    assert_eq!(lab.sql("SELECT count(*) FROM {steps} WHERE key = 'request'"), "0");
}

/// It tries the same call again, then another; it drops a call that hangs.
// R133
async fn a_program_that_ignores_an_error_does_not_go_on<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let steps = Steps::new("careless", move |mut run: Run<S>, hangs: bool| {
        let calls = counted.clone();
        async move {
            for _ in 0..2 {
                let begun = Notify::new();
                let call = run.call_once("called", async |_| {
                    calls.fetch_add(1, Ordering::SeqCst);
                    if hangs {
                        begun.notify_one();
                        std::future::pending::<()>().await;
                    }
                    Err::<(), _>(timed_out())
                });
                tokio::select! {
                    _ = call => {}
                    () = begun.notified() => {}
                }
            }
            let _ = run.call("other", async |_| Ok(calls.fetch_add(1, Ordering::SeqCst))).await;
            run.finish(async |mut tx| {
                S::effect(&mut tx, "finished").await?;
                Ok(Reply::new(StatusCode::OK, ""))
            })
            .await
        }
    });
    for (key, hangs) in [("fails", false), ("hangs", true)] {
        calls.store(0, Ordering::SeqCst);
        let outcome = steps.run(&shop, &operation(key), &hangs).await.unwrap();
        assert!(matches!(outcome, StepsOutcome::Unknown { .. }), "{outcome:?}");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "{key}");
    }
    assert_eq!(lab.effects(), "");
}

async fn work_that_commits_by_itself_leaves_the_operation_unknown<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let steps = Steps::new("committing", async |mut run: Run<S>, fails: bool| {
        let committed = run.step("commits", async |mut tx| {
            S::effect(&mut tx, "committed").await?;
            S::commit(&mut tx).await?;
            if fails { Err("it fails after its commit".into()) } else { Ok(()) }
        });
        // Ignored: it is in doubt all the same.
        let _ = committed.await;
        run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
    });
    let operators = lab.operators().await;
    for fails in [false, true] {
        let key = format!("k{fails}");
        for _ in 0..2 {
            let outcome = steps.run(&shop, &operation(&key), &fails).await.unwrap();
            let StepsOutcome::Unknown { operation: id, .. } = outcome else {
                panic!("{outcome:?}")
            };
            let (stored, points) = operators.show(&id).await.unwrap().unwrap();
            assert_eq!((stored.calling.as_deref(), points.len()), (Some("commits"), 0));
            assert!(!operators.retry(&id, CallAgain::No, "ann: why not").await.unwrap());
            lab.let_time_pass();
        }
    }
    assert_eq!(lab.effects(), "committed|2");
}

/// Also after a statement that failed, which aborts a transaction of Postgres.
async fn work_that_fails_is_rolled_back_and_done_again<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let steps = Steps::new("failing", move |mut run: Run<S>, _: u32| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            run.step("works", async |mut tx| {
                S::effect(&mut tx, "works").await?;
                match number {
                    0 => Err("it fails".into()),
                    1 => S::refused(&mut tx).await,
                    _ => Ok(()),
                }
            })
            .await?;
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    });
    for _ in 0..2 {
        let failed = steps.run(&shop, &operation("k"), &1).await.unwrap_err();
        assert!(matches!(failed, StepsError::Failed { .. }), "{failed:?}");
        lab.let_time_pass();
    }
    answered(&steps, &shop, "k", &1).await;
    assert_eq!(lab.effects(), "works|1");
}

/// The step is done again, and the call before it is not.
#[tokio::test]
async fn a_serialization_failure_is_tried_again_at_once_from_the_last_point() {
    let lab = Lab::postgres().await;
    let shop = PgDatabase::connect(&lab.address).await;
    let (calls, works) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (calls.clone(), works.clone());
    let steps = Steps::new("conflicting", move |mut run: Run<PgDatabase>, _: u32| {
        let (calls, works) = counted.clone();
        async move {
            run.call("called", async |_| Ok(calls.fetch_add(1, Ordering::SeqCst))).await?;
            run.step("works", async |mut tx| {
                PgDatabase::effect(&mut tx, "works").await?;
                if works.fetch_add(1, Ordering::SeqCst) < 2 {
                    let fail = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$";
                    sqlx::query(fail).execute(&mut *tx).await?;
                }
                tx.ping().await?;
                Ok(())
            })
            .await?;
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    });
    let outcome = steps.run(&shop, &operation("k"), &1).await.unwrap();
    assert!(matches!(outcome, StepsOutcome::Done(_)), "{outcome:?}");
    assert_eq!([&calls, &works].map(|count| count.load(Ordering::SeqCst)), [1, 3]);
    assert_eq!(lab.effects(), "works|1");
}
