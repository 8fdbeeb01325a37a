//! A database that does not answer, and callers that do not wait for it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce::transaction::{Begun, SqlxTx, TransactionError, Transactions};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::lab::{CHARGE, Lab, charge, created, pool};
use crate::lost_commit::{CUT_REPLY, Line};

async fn begun(pool: &PgPool, key: &str) -> SqlxTx {
    match Transactions::new().begin(pool, &charge(key)).await.unwrap() {
        Begun::Mine(tx) => tx,
        other => panic!("{other:?}"),
    }
}

/// The reply to BEGIN comes when its caller has gone: what others write through the pool is not part of that transaction.
// R126
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_whose_caller_has_gone_leaves_no_open_transaction_in_the_pool() {
    let lab = Lab::start().await;
    let line = Line::lay(lab.postgres.port()).await;
    let pool = pool(&line.url(&lab.url), 1).await;
    for (round, call) in ["begin", "begin_within", "consume", "resolve"].into_iter().enumerate() {
        let calling = match call {
            "resolve" => {
                let tx = begun(&pool, "resolve").await;
                line.cut.store(CUT_REPLY, Ordering::SeqCst);
                line.hold("BEGIN ISOLATION");
                tokio::spawn(async move { drop(tx.complete(created()).await) })
            }
            _ => {
                line.hold("BEGIN");
                let pool = pool.clone();
                tokio::spawn(async move { called(call, &pool).await })
            }
        };
        line.holding().await;
        calling.abort();
        assert!(calling.await.unwrap_err().is_cancelled(), "{call}");
        line.release();
        sqlx::query(CHARGE).execute(&pool).await.unwrap();
        assert_eq!(lab.charges(), (round + 1).to_string(), "{call}: the charge is committed");
    }
}

async fn called(call: &str, pool: &PgPool) {
    let (transactions, operation) = (Transactions::new(), charge("k"));
    match call {
        "begin" => drop(transactions.begin(pool, &operation).await),
        "begin_within" => {
            drop(transactions.begin_within(pool, &operation, Duration::from_secs(60)).await)
        }
        _ => {
            let work = async |_: &mut sqlx::PgConnection| Ok::<_, sqlx::Error>(());
            drop(transactions.consume(pool, "mailer", "m", work).await)
        }
    }
}

/// The time is the runtime's, so that nobody waits for it.
#[tokio::test]
async fn a_database_that_falls_silent_before_commit_has_done_nothing() {
    let lab = Lab::start().await;
    let line = Line::lay(lab.postgres.port()).await;
    let options = PgPoolOptions::new().acquire_timeout(Duration::from_secs(3));
    for (key, statement) in
        [("a", "BEGIN"), ("b", "\".begin("), ("c", "\".complete("), ("d", "ROLLBACK")]
    {
        let pool = options.clone().connect(&line.url(&lab.url)).await.unwrap();
        let calling = match key {
            "a" | "b" => {
                line.hold(statement);
                tokio::spawn(async move {
                    Transactions::new().begin(&pool, &charge(key)).await.map(drop)
                })
            }
            _ => {
                let tx = begun(&pool, key).await;
                line.hold(statement);
                tokio::spawn(async move {
                    match key {
                        "c" => tx.complete(created()).await.map(drop),
                        _ => tx.decline(created()).await.map(drop),
                    }
                })
            }
        };
        line.holding().await;
        tokio::time::pause();
        let ended = tokio::time::timeout(Duration::from_secs(60), calling).await;
        tokio::time::resume();
        let ended = ended.expect("it gives up").unwrap();
        assert!(matches!(ended, Err(TransactionError::NotDone(_))), "{statement}: {ended:?}");
        line.release();
    }
    assert_eq!(lab.sql("SELECT count(*) FROM onlyonce.transactional"), "0");
}
