//! Databases whose default isolation is above READ COMMITTED.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use onlyonce::steps::{Completer, PgDatabase, Run, Steps, StepsOutcome, Stopped};
use onlyonce::store::postgres::PostgresStore;
use onlyonce::transaction::Reply;
use servers::Postgres;

use crate::lab::{Shop, operation, tiered};

const ABOVE: [&str; 2] = ["repeatable read", "serializable"];

/// A database with this default, its address, and a table for effects.
async fn database(isolation: &str) -> (Postgres, String) {
    let default = format!("default_transaction_isolation={isolation}");
    let postgres = Postgres::start_with(&[&default]);
    let url = postgres.database();
    PostgresStore::open(&url).await.unwrap().close().await;
    postgres.sql(&url, "CREATE TABLE effect (operation text NOT NULL, what text NOT NULL)");
    (postgres, url)
}

/// The lease is renewed three times in its time, and a transaction that began before a renewal would not see it. The work has
/// the isolation that the database gives it all the same.
// threat K20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_is_longer_than_its_lease_commits() {
    for isolation in ABOVE {
        let (postgres, url) = database(isolation).await;
        let shop = PgDatabase::connect(&url).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let long = Steps::new("long", move |mut run: Run<PgDatabase>, _: u32| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                let shown = run
                    .step("long", async |mut tx| {
                        let shown = sqlx::query_scalar("SHOW transaction_isolation");
                        let shown: String = shown.fetch_one(&mut *tx).await?;
                        PgDatabase::effect(&mut tx, "long").await?;
                        tokio::time::sleep(LEASE.mul_f64(1.5)).await;
                        Ok(shown)
                    })
                    .await?;
                run.finish(async |_| Ok(Reply::new(StatusCode::OK, shown))).await
            }
        })
        .with_lease(LEASE);
        let (owner, database) = (long.clone(), shop.clone());
        let owner = tokio::spawn(async move { owner.run(&database, &operation("k"), &1).await });
        while runs.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // Nobody takes it meanwhile, and nobody waits for it.
        let completer = Completer::new(shop.clone()).with(&long).with_poll_max(LEASE / 10);
        let completing = tokio::spawn(completer.run());
        while !owner.is_finished() {
            match long.run(&shop, &operation("k"), &1).await.unwrap() {
                StepsOutcome::InProgress { .. } | StepsOutcome::Replay(_) => {}
                other => panic!("{isolation}: {other:?}"),
            }
            tokio::time::sleep(LEASE / 20).await;
        }
        let done = owner.await.unwrap().unwrap();
        assert!(matches!(&done, StepsOutcome::Done(it) if it.body == isolation), "{done:?}");
        completing.abort();
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{isolation}");
        assert_eq!(postgres.sql(&url, "SELECT count(*) FROM effect"), "1", "{isolation}");
    }
}

/// Callers that meet each other at one row are told what it says, and not that the database failed.
// threat K20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_meet_are_told_so() {
    for isolation in ABOVE {
        let (postgres, url) = database(isolation).await;
        let shop = PgDatabase::connect(&url).await;
        let fails_first = Arc::new(AtomicUsize::new(0));
        let count = fails_first.clone();
        let steps = Steps::new("met", move |run: Run<PgDatabase>, _: u32| {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    return Err(Stopped::failed("it is left to the others"));
                }
                run.finish(async |mut tx| {
                    PgDatabase::effect(&mut tx, "done").await?;
                    Ok(Reply::new(StatusCode::OK, ""))
                })
                .await
            }
        });
        let rounds = tiered(60);
        for round in 0..rounds {
            fails_first.store(0, Ordering::SeqCst);
            let key = operation(&format!("k{round}"));
            steps.run(&shop, &key, &1).await.unwrap_err();
            postgres.sql(
                &url,
                "UPDATE onlyonce.steps SET due_at = clock_timestamp() - interval '1 s' WHERE due_at IS NOT NULL",
            );
            let calls = (0..8).map(|_| {
                let (steps, shop, key) = (steps.clone(), shop.clone(), key.clone());
                tokio::spawn(async move { steps.run(&shop, &key, &1).await })
            });
            for call in calls.collect::<Vec<_>>() {
                match call.await.unwrap() {
                    Ok(
                        StepsOutcome::Done(_)
                        | StepsOutcome::Replay(_)
                        | StepsOutcome::InProgress { .. },
                    ) => {}
                    other => panic!("{isolation}: {other:?}"),
                }
            }
        }
        let effects = "SELECT count(*), count(DISTINCT operation) FROM effect";
        assert_eq!(postgres.sql(&url, effects), format!("{rounds}|{rounds}"), "{isolation}");
    }
}

const LEASE: Duration = Duration::from_secs(1);
