//! Through sqlx.

use std::sync::atomic::{AtomicU32, Ordering};

use http::{HeaderValue, StatusCode, header};
use onlyonce::transaction::{Begun, Reply, SqlxTx, TransactionError, Transactions, Worked};

use crate::lab::{CHARGE, Lab, charge, created, tiered};

// R125, R126
#[tokio::test]
async fn an_operation_runs_once_and_its_answer_is_replayed() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(2).await, Transactions::new());
    let answer = created().with_header(header::LOCATION, HeaderValue::from_static("/charges/1"));
    let Begun::Mine(mut tx) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
        panic!()
    };
    sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
    assert_eq!(tx.complete(answer.clone()).await.unwrap(), answer);
    let Begun::Replay(reply) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
        panic!()
    };
    assert_eq!(reply, answer);
    let other = charge("k").with_payload(&1).unwrap();
    assert!(matches!(transactions.begin(&pool, &other).await.unwrap(), Begun::Reused));
    assert_eq!(lab.charges(), "1");
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_and_the_key_is_free() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    for _ in 0..3 {
        let Begun::Mine(mut tx) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
            panic!()
        };
        sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
        drop(tx);
    }
    assert_eq!(lab.charges(), "0");
}

#[tokio::test]
async fn a_declined_operation_keeps_its_answer_and_not_its_writes() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    let refusal = Reply::new(StatusCode::PAYMENT_REQUIRED, "no money");
    let Begun::Mine(mut tx) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
        panic!()
    };
    sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
    tx.outbox("charges", Some("acct_1"), b"paid").await.unwrap();
    tx.decline(refusal.clone()).await.unwrap();
    let Begun::Replay(reply) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
        panic!()
    };
    assert_eq!(reply, refusal);
    assert_eq!(lab.charges(), "0");
    assert_eq!(lab.sql("SELECT count(*) FROM onlyonce.outbox"), "0");
}

// threat C9
#[tokio::test]
async fn work_that_commits_by_itself_is_noticed_and_leaves_nothing() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    let Begun::Mine(mut tx) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
        panic!()
    };
    sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
    assert!(sqlx::raw_sql("COMMIT").execute(&mut *tx).await.is_err());
    let ended = tx.complete(created()).await;
    assert!(matches!(ended, Err(TransactionError::EndedByWork(_))), "{ended:?}");
    assert_eq!(lab.charges(), "0");
}

#[tokio::test]
async fn functions_that_are_missing_or_of_another_version_are_told() {
    let lab = Lab::start().await;
    let pool = lab.pool(1).await;
    let missing = Transactions::in_schema("nowhere").begin(&pool, &charge("k")).await;
    assert!(matches!(missing, Err(TransactionError::NotInstalled(_))), "{missing:?}");
    let newer = "SELECT replace(pg_get_functiondef('onlyonce.begin'::regproc), 'version <> 1', 'version <> 2')";
    let newer = lab.sql(newer);
    lab.sql(&newer);
    let other = Transactions::new().begin(&pool, &charge("k")).await;
    assert!(matches!(other, Err(TransactionError::OtherVersion)), "{other:?}");
}

/// Counters that two transactions read and then write: under SERIALIZABLE only one of them may commit.
// R128
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_meets_another_transaction_is_done_again_from_its_start() {
    let lab = Lab::start_with(&["default_transaction_isolation=serializable"]).await;
    lab.sql("CREATE TABLE account (balance integer NOT NULL); INSERT INTO account VALUES (0)");
    let (pool, transactions, runs) = (lab.pool(8).await, Transactions::new(), AtomicU32::new(0));
    let work = async |mut tx: SqlxTx| -> Result<Worked, Box<dyn std::error::Error + Send + Sync>> {
        runs.fetch_add(1, Ordering::SeqCst);
        let balance: i32 =
            sqlx::query_scalar("SELECT balance FROM account").fetch_one(&mut *tx).await?;
        tokio::task::yield_now().await;
        let write = sqlx::query("UPDATE account SET balance = $1").bind(balance + 1);
        write.execute(&mut *tx).await?;
        Ok(tx.completed(created()))
    };
    let count = tiered(400);
    let mut calls = count;
    for first in (0..count).step_by(4) {
        let keys: Vec<_> = (first..first + 4).map(|number| charge(&format!("k{number}"))).collect();
        let [a, b, c, d] = &keys[..] else { panic!() };
        let ended = tokio::join!(
            transactions.run(&pool, a, work),
            transactions.run(&pool, b, work),
            transactions.run(&pool, c, work),
            transactions.run(&pool, d, work),
        );
        for (operation, ended) in keys.iter().zip([ended.0, ended.1, ended.2, ended.3]) {
            // Out of retries, nothing was done: the caller's own retry does it.
            if ended.is_err() {
                calls += 1;
                assert!(matches!(
                    transactions.run(&pool, operation, work).await.unwrap(),
                    Begun::Mine(_)
                ));
            }
        }
    }
    assert_eq!(lab.sql("SELECT balance FROM account"), count.to_string());
    let runs = runs.load(Ordering::SeqCst) as usize;
    assert!(runs > calls, "no work was done again: {runs} runs in {calls} calls");
    println!("{count} operations, {runs} runs in {calls} calls");
}

/// The errors of the work are of anyhow, with and without words of the program's own about them.
// R128
#[tokio::test]
async fn work_whose_errors_are_of_anyhow_is_done_again_after_a_conflict() {
    use anyhow::Context;
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    for (key, is_told) in [("bare", false), ("told", true)] {
        let runs = AtomicU32::new(0);
        let work = async |mut tx: SqlxTx| -> anyhow::Result<Worked> {
            if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                let conflict =
                    "DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$";
                let met = sqlx::raw_sql(conflict).execute(&mut *tx).await;
                if is_told {
                    met.context("the balance")?
                } else {
                    met?
                };
            }
            Ok(tx.completed(created()))
        };
        let ended = transactions.run(&pool, &charge(key), work).await.unwrap();
        assert!(matches!(ended, Begun::Mine(_)), "{key}: {ended:?}");
        assert_eq!(runs.load(Ordering::SeqCst), 2, "{key}");
    }
    let failed = async |_: SqlxTx| -> anyhow::Result<Worked> { anyhow::bail!("no stock") };
    match transactions.run(&pool, &charge("failed"), failed).await {
        Err(TransactionError::NotDone(error)) => assert_eq!(error.to_string(), "no stock"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_refusal_of_the_work_is_kept_by_run() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    let refusal = || Reply::new(StatusCode::PAYMENT_REQUIRED, "no money");
    let work = async |mut tx: SqlxTx| -> Result<Worked, sqlx::Error> {
        sqlx::query(CHARGE).execute(&mut *tx).await?;
        Ok(tx.declined(refusal()))
    };
    for is_first in [true, false] {
        match transactions.run(&pool, &charge("k"), work).await.unwrap() {
            Begun::Mine(reply) => assert_eq!((reply, is_first), (refusal(), true)),
            Begun::Replay(reply) => assert_eq!((reply, is_first), (refusal(), false)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lab.charges(), "0");
}

// threat C10
#[tokio::test]
async fn work_that_returns_the_transaction_of_another_operation_is_refused() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(2).await, Transactions::new());
    let work = async |_: SqlxTx| -> Result<Worked, TransactionError> {
        let Begun::Mine(mut other) = transactions.begin(&pool, &charge("other")).await? else {
            panic!()
        };
        sqlx::query(CHARGE).execute(&mut *other).await.unwrap();
        Ok(other.completed(created()))
    };
    let ended = transactions.run(&pool, &charge("k"), work).await;
    assert!(matches!(ended, Err(TransactionError::EndedByWork(_))), "{ended:?}");
    assert_eq!(lab.charges(), "0");
}

// R140
#[tokio::test]
async fn a_second_delivery_of_a_message_has_no_effect() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    for is_first in [true, false] {
        let mut tx = pool.begin().await.unwrap();
        let seen = transactions.is_first_delivery(&mut tx, "mailer", "m1").await.unwrap();
        assert_eq!(seen, is_first);
        tx.commit().await.unwrap();
    }
}
