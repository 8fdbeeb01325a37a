//! Databases that are not set up: it takes an operator, and no retry, to mend them.

use axum::Router;
use axum::routing::post;
use onlyonce::Policy;
use onlyonce::transaction::{TransactionError, Transactions, Tx};
use servers::Postgres;

use super::{Answer, BODY, caller, charge, send};
use crate::lab::{self, Lab};

/// What a client is told by a layer on this database.
async fn answered(url: &str) -> Answer {
    let layer = Transactions::new().layer(lab::pool(url, 1).await, caller, Policy::default());
    let app = Router::new().route("/charges", post(async |_: Tx| "charged")).layer(layer);
    send(app, charge("k", BODY)).await
}

/// The request was not executed, and what is to be run is said.
fn assert_says(answer: &Answer, what: &str) {
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (503, "idempotency_store_unavailable")
    );
    let told = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(told.contains(what), "{told}");
    let seconds: u32 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(seconds >= 30, "nobody mends it within {seconds} s");
}

async fn begun(url: &str) -> TransactionError {
    let pool = lab::pool(url, 1).await;
    Transactions::new().begin(&pool, &lab::charge("k")).await.unwrap_err()
}

#[tokio::test]
async fn a_database_without_the_schema_says_what_to_run() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let error = begun(&url).await;
    assert!(matches!(error, TransactionError::NotInstalled(_)), "{error:?}");
    assert!(error.to_string().contains("onlyonce migrate --to postgres://"), "{error}");
    assert_says(&answered(&url).await, "onlyonce migrate");
}

#[tokio::test]
async fn a_role_without_the_rights_is_told_that_it_needs_them() {
    let lab = Lab::start().await;
    lab.sql("CREATE ROLE app LOGIN");
    let url = lab.url.replace("//postgres@", "//app@");
    for grant in ["", "GRANT USAGE ON SCHEMA onlyonce TO app"] {
        lab.sql(grant);
        let error = begun(&url).await;
        assert!(matches!(error, TransactionError::NotAllowed(_)), "{grant}: {error:?}");
        assert!(error.to_string().contains("GRANT"), "{error}");
        let answer = answered(&url).await;
        assert_says(&answer, "its operator");
        assert!(!String::from_utf8_lossy(&answer.body).contains("onlyonce."), "no names of tables");
    }
}

#[tokio::test]
async fn functions_of_another_version_say_so() {
    let lab = Lab::start().await;
    let newer = "SELECT replace(pg_get_functiondef('onlyonce.begin'::regproc), 'version <> 1', 'version <> 2')";
    lab.sql(&lab.sql(newer));
    assert_says(&answered(&lab.url).await, "another version");
}
