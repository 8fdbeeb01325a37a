//! Steps whose work leaves a nested transaction of sqlx open, which takes the COMMIT for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use onlyonce::steps::{PgDatabase, Run, Steps, StepsError};
use onlyonce::transaction::Reply;
use sqlx::Connection;
use sqlx::postgres::PgPoolOptions;

use crate::lab::{Lab, answered, operation};

/// Else the next step, a call to another service, would follow one that was never committed.
// threat K21
#[tokio::test]
async fn a_step_with_a_nested_transaction_that_was_forgotten_is_not_passed() {
    let lab = Lab::postgres().await;
    let pool = PgPoolOptions::new().max_connections(2).connect(&lab.address).await.unwrap();
    let shop = PgDatabase::new(pool);
    let (runs, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, called) = (runs.clone(), calls.clone());
    let steps = Steps::new("forgetful", move |mut run: Run<PgDatabase>, _: u32| {
        let (is_first, called) = (counted.fetch_add(1, Ordering::SeqCst) == 0, called.clone());
        async move {
            run.step("saved", async |mut tx| {
                let mut nested = tx.begin().await?;
                let effect = sqlx::query("INSERT INTO effect VALUES ('operation', 'saved')");
                effect.execute(&mut *nested).await?;
                match is_first {
                    true => std::mem::forget(nested),
                    false => nested.commit().await?,
                }
                Ok(())
            })
            .await?;
            run.call("called", async |_| Ok(called.fetch_add(1, Ordering::SeqCst))).await?;
            run.finish(async |_| Ok(Reply::new(StatusCode::OK, "done"))).await
        }
    });
    let forgotten = steps.run(&shop, &operation("k"), &1).await;
    assert!(matches!(forgotten, Err(StepsError::Failed { .. })), "{forgotten:?}");
    assert_eq!((lab.effects().as_str(), calls.load(Ordering::SeqCst)), ("", 0));
    lab.let_time_pass();
    assert_eq!(answered(&steps, &shop, "k", &1).await.body, "done");
    assert_eq!((lab.effects().as_str(), calls.load(Ordering::SeqCst)), ("saved|1", 1));
}
