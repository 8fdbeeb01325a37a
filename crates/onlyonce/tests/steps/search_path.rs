//! Names that a stranger has put where names are looked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use onlyonce::steps::{
    CallAgain, Completer, Operators, PgDatabase, Run, Steps, StepsOutcome, Stopped,
};
use onlyonce::store::postgres::PostgresStore;
use onlyonce::transaction::Reply;
use servers::Postgres;
use sqlx::postgres::PgPoolOptions;

use crate::lab::{Shop, WAIT_MAX, operation};

// threat K19
#[tokio::test]
async fn nothing_of_the_search_path_is_called() {
    let postgres = Postgres::start();
    let plain = postgres.database();
    let url = postgres.make_hostile(&plain);
    PostgresStore::open(&url).await.unwrap().close().await;
    postgres.sql(
        &plain,
        "CREATE TABLE effect (operation pg_catalog.text NOT NULL, what pg_catalog.text NOT NULL)",
    );
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
    let shop = PgDatabase::new(pool);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let steps = Steps::new("hostile", move |mut run: Run<PgDatabase>, _: u32| {
        let is_first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            run.step("saved", async |mut tx| {
                PgDatabase::effect(&mut tx, "saved").await?;
                tx.outbox("orders", Some("acct_1"), b"saved").await?;
                Ok(1)
            })
            .await?;
            run.call_once("called", async |_| Ok(2)).await?;
            if is_first {
                return Err(Stopped::failed("the next attempt does it"));
            }
            run.finish(async |_| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    });
    steps.run(&shop, &operation("k"), &1).await.unwrap_err();
    let operators = Operators::open(&url).await.unwrap();
    let found = operators.list(Default::default(), None).await.unwrap();
    let again = CallAgain::No;
    assert!(operators.retry(&found[0].id, again, "checked").await.unwrap());
    let shutdown = async {
        while postgres.sql(&plain, "SELECT state FROM onlyonce.steps") != "completed" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let completing =
        Completer::new(shop.clone()).with(&steps).with_poll_max(Duration::from_millis(50));
    tokio::time::timeout(WAIT_MAX, completing.run_until(shutdown)).await.unwrap();
    let replay = steps.run(&shop, &operation("k"), &1).await.unwrap();
    assert!(matches!(replay, StepsOutcome::Replay(_)), "{replay:?}");
    assert!(!postgres.has_caught(&plain));
}
