//! Answers that have expired: deleted by the next attempt, and back when that is undone. They say nothing about it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::StatusCode;
use onlyonce::transaction::{Begun, TransactionError, Transactions, Tx};
use onlyonce::{Operation, Policy};
use tokio_postgres::NoTls;

use crate::lab::{CHARGE, Lab, charge, created, pool};
use crate::layer::{BODY, caller, charge as request, send};
use crate::lost_commit::{CUT_REPLY, CUT_REQUEST, Line};

/// A shop whose charges need an account, which is looked for at COMMIT.
async fn shop() -> Lab {
    let lab = Lab::start().await;
    lab.sql(
        "CREATE TABLE account (id integer PRIMARY KEY);
         ALTER TABLE charge ADD account integer REFERENCES account DEFERRABLE INITIALLY DEFERRED",
    );
    lab
}

const ORPHAN: &str = "INSERT INTO charge (amount, account) VALUES (7998, 1)";

/// Completes `operation` once, and lets its answer expire.
async fn done_long_ago(lab: &Lab, operation: &Operation) {
    let Begun::Mine(tx) = Transactions::new().begin(&lab.pool(1).await, operation).await.unwrap()
    else {
        panic!()
    };
    tx.complete(created()).await.unwrap();
    expire(lab);
}

fn expire(lab: &Lab) {
    lab.sql("UPDATE onlyonce.transactional SET expires_at = clock_timestamp()");
}

// threat K17
#[tokio::test]
async fn an_expired_answer_is_no_row_to_resolve() {
    let lab = shop().await;
    done_long_ago(&lab, &charge("k")).await;
    let token = lab.sql("SELECT id FROM onlyonce.transactional");
    let (mut client, connection) = tokio_postgres::connect(&lab.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let resolved = Transactions::new().resolve_on(&mut client, &charge("k"), &token).await.unwrap();
    assert_eq!(resolved, None);
}

/// The server has said no: there is nothing to ask about.
// threat K17
#[tokio::test]
async fn a_commit_that_is_refused_is_not_answered_by_an_expired_answer() {
    let lab = shop().await;
    done_long_ago(&lab, &charge("k")).await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    let Begun::Mine(mut tx) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
        panic!()
    };
    sqlx::query(ORPHAN).execute(&mut *tx).await.unwrap();
    let ended = tx.complete(created()).await;
    assert!(matches!(ended, Err(TransactionError::NotDone(_))), "{ended:?}");
    let (mut client, connection) = tokio_postgres::connect(&lab.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let Begun::Mine(tx) = transactions.begin_on(&mut client, &charge("k")).await.unwrap() else {
        panic!()
    };
    tx.batch_execute(ORPHAN).await.unwrap();
    let ended = tx.complete(created()).await;
    assert!(matches!(ended, Err(TransactionError::NotDone(_))), "{ended:?}");
    assert_eq!(lab.charges(), "0");
}

/// What a check of the caller's does not find at COMMIT says nothing about our tables.
// threat K17
#[tokio::test]
async fn a_check_of_the_callers_that_fails_at_commit_is_no_fault_of_the_set_up() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    for state in ["42P01", "42883", "42501", "26000", "OO006"] {
        lab.sql(&format!(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN RAISE EXCEPTION 'failed' USING ERRCODE = '{state}'; END $$;
             DROP TRIGGER IF EXISTS fails ON charge; CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON charge DEFERRABLE INITIALLY DEFERRED
               FOR EACH ROW EXECUTE FUNCTION fail()"
        ));
        let Begun::Mine(mut tx) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
            panic!()
        };
        sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
        let ended = tx.complete(created()).await;
        assert!(matches!(ended, Err(TransactionError::NotDone(_))), "{state}: {ended:?}");
    }
    assert_eq!(lab.charges(), "0");
}

// threat K17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_is_not_answered_by_an_expired_answer() {
    let lab = shop().await;
    done_long_ago(&lab, &charge("k")).await;
    let line = Line::lay(lab.postgres.port()).await;
    let pool = pool(&line.url(&lab.url), 2).await;
    let Begun::Mine(tx) = Transactions::new().begin(&pool, &charge("k")).await.unwrap() else {
        panic!()
    };
    line.cut.store(CUT_REQUEST, Ordering::SeqCst);
    let ended = tx.complete(created()).await;
    assert!(matches!(ended, Err(TransactionError::NotDone(_))), "{ended:?}");
}

/// An answer that is kept for less time than it takes to ask: no row is no proof that the commit was not made.
// threat K17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_whose_answer_has_expired_meanwhile_is_unsure() {
    let lab = shop().await;
    let line = Line::lay(lab.postgres.port()).await;
    let pool = pool(&line.url(&lab.url), 2).await;
    let brief = charge("k").with_policy(Policy::default().with_ttl(Duration::from_millis(1)));
    let Begun::Mine(tx) = Transactions::new().begin(&pool, &brief).await.unwrap() else { panic!() };
    line.cut.store(CUT_REPLY, Ordering::SeqCst);
    let ended = tx.complete(created()).await;
    assert!(matches!(ended, Err(TransactionError::Unsure { .. })), "{ended:?}");
}

/// The same in axum: the client is told that its charge was undone, and not that it was made.
// threat K17
#[tokio::test]
async fn a_refused_commit_is_never_a_success_in_axum() {
    let handler = async |mut tx: Tx| {
        sqlx::query(ORPHAN).execute(&mut *tx).await.unwrap();
        StatusCode::CREATED
    };
    let lab = shop().await;
    let layer = Transactions::new().layer(lab.pool(2).await, caller, Policy::default());
    let app = Router::new().route("/charges", post(handler)).layer(layer);
    lab.sql("INSERT INTO account VALUES (1)");
    assert_eq!(send(app.clone(), request("k", BODY)).await.status, StatusCode::CREATED);
    lab.sql("TRUNCATE charge, account");
    expire(&lab);
    let answer = send(app, request("k", BODY)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "idempotency_rolled_back"));
    assert_eq!(lab.charges(), "0");
}
