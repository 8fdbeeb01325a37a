//! A payments service that charges once, however often the client asks.
use std::time::Duration;

use axum::{Router, http::request::Parts, routing::post};
use onlyonce::{Once, Policy, policy::InFlight, scope::Principal, store::sqlite::SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let once = Once::new(SqliteStore::open("onlyonce.db").await?);
    let waiting = Policy::payments().with_in_flight(InFlight::Wait(Duration::from_secs(5)));
    let app = Router::new()
        .route("/charges", post(charge).layer(once.layer(caller, Policy::payments())))
        .route("/orders", post(charge).layer(once.layer(caller, waiting)));
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// The bank takes its time.
async fn charge(body: String) -> String {
    tokio::time::sleep(Duration::from_millis(500)).await;
    format!("{body} charged as {:?}\n", std::time::UNIX_EPOCH.elapsed())
}

/// The caller: here the API key, checked by a layer outside of this one. Without one a keyed request is answered
/// 401, because strangers must not share their keys.
fn caller(head: &Parts) -> Option<Principal> {
    let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
    Some(Principal::of("api-key", api_key.as_bytes()))
}
