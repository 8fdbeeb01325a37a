//! Two layers around one handler.

use axum::Router;
use axum::routing::post;
use http::StatusCode;
use onlyonce::Policy;
use onlyonce::transaction::{Transactions, Tx};

use super::{BODY, caller, charge, send};
use crate::lab::{self, CHARGE, Lab};

async fn create(mut tx: Tx) -> StatusCode {
    sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
    StatusCode::CREATED
}

fn operations(lab: &Lab) -> String {
    lab.sql("SELECT count(*) FROM onlyonce.transactional")
}

#[tokio::test]
async fn layers_of_one_database_claim_once() {
    let lab = Lab::start().await;
    let layer = |pool| Transactions::new().layer(pool, caller, Policy::default());
    // Two pools, as two parts of a program may have them.
    let (outer, inner) = (layer(lab.pool(2).await), layer(lab.pool(2).await));
    let app = Router::new().route("/charges", post(create)).layer(inner).layer(outer);
    assert_eq!(send(app.clone(), charge("k", BODY)).await.status, StatusCode::CREATED);
    assert!(send(app, charge("k", BODY)).await.is_replay());
    assert_eq!((lab.charges(), operations(&lab)), ("1".to_owned(), "1".to_owned()));
}

#[tokio::test]
async fn layers_of_two_databases_or_two_schemas_both_claim() {
    let lab = Lab::start().await;
    let other = Lab::start().await;
    let of =
        |schema: &str, pool| Transactions::in_schema(schema).layer(pool, caller, Policy::default());
    let inner = of("onlyonce", lab.pool(2).await);
    let app = Router::new().route("/charges", post(create)).layer(inner);
    let two_databases = app.clone().layer(of("onlyonce", other.pool(2).await));
    assert_eq!(send(two_databases, charge("k", BODY)).await.status, StatusCode::CREATED);
    assert_eq!((operations(&lab), operations(&other)), ("1".to_owned(), "1".to_owned()));
    assert_eq!(lab.charges(), "1");
    assert!(send(app.clone(), charge("k", BODY)).await.is_replay(), "the inner database has it");

    let second = format!("{}?schema=second", lab.url);
    onlyonce::store::postgres::PostgresStore::open(&second).await.unwrap().close().await;
    let two_schemas = app.layer(of("second", lab::pool(&lab.url, 2).await));
    assert_eq!(send(two_schemas, charge("k2", BODY)).await.status, StatusCode::CREATED);
    assert_eq!(lab.sql("SELECT count(*) FROM second.transactional"), "1");
    assert_eq!((operations(&lab), lab.charges()), ("2".to_owned(), "2".to_owned()));
}
