//! A payments service: charges with a receipt and an event, and refunds, each exactly once.
//!
//! - `POST /charges` calls a card network and a mail service, so it is a program of steps: `charge.rs`.
//! - `POST /refunds` only writes to the database, so it is one transaction: `refund.rs`.
//! - A completer goes on with charges whose client never came back, and a relay ships the events.
//!
//! docs/transactions.md walks through it.

mod charge;
mod others;
mod refund;

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use axum::routing::post;
use onlyonce::Policy;
use onlyonce::outbox::{Relay, Webhook};
use onlyonce::scope::Principal;
use onlyonce::steps::{Completer, PgDatabase, Steps};
use onlyonce::store::postgres::PostgresStore;
use onlyonce::transaction::Transactions;
use sqlx::postgres::PgPoolOptions;

use crate::others::Others;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("SHOP_DATABASE")?;
    PostgresStore::open(&url).await?.close().await; // makes the tables and functions of onlyonce
    let pool = PgPoolOptions::new().max_connections(8).connect(&url).await?;
    sqlx::raw_sql(include_str!("../tables.sql")).execute(&pool).await?;

    let others = Others::new(std::env::var("CARD_URL")?, std::env::var("MAIL_URL")?);
    let lease = std::env::var("LEASE_SECONDS").unwrap_or_else(|_| "30".to_owned()).parse()?;
    let charges =
        Steps::new("charge", move |run, order| charge::charge(run, order, others.clone()))
            .with_lease(Duration::from_secs(lease));
    let database = PgDatabase::new(pool.clone());
    tokio::spawn(Completer::new(database.clone()).with(&charges).run());

    let events = Webhook::new(&std::env::var("EVENTS_URL")?, &std::env::var("EVENTS_SECRET")?)?;
    tokio::spawn(Relay::open(&url, events).await?.run());

    let app = Router::new()
        .route("/refunds", post(refund::refund))
        .layer(Transactions::new().layer(pool, caller, Policy::payments()))
        .route("/charges", post(charge::take))
        .with_state(charges.over_http(database, caller, Policy::payments()));
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// Who asks: here by an API key, which a layer outside of this service has checked.
fn caller(head: &Parts) -> Option<Principal> {
    let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
    Some(Principal::of("api-key", api_key.as_bytes()))
}
