//! axum-idempotent 0.6 as its README shows it: Moka store, the key from `Idempotency-Key`, 5 minutes.
//! It works only for requests that carry a session: `POST /session` starts one.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::http::{StatusCode, header};
use axum::routing::{get, post};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::store::Ttl;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, Session, SessionLayer};
use tower_cookies::CookieManagerLayer;

#[tokio::main]
async fn main() {
    let (port, file, _) = peers::arguments();
    let counted = file.clone();
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(60 * 5);
    let charges = post(async move |RawQuery(query): RawQuery, body: Bytes| {
        let (status, body) = peers::charge(&file, &query.unwrap_or_default(), &body).await;
        (StatusCode::from_u16(status).unwrap(), [(header::CONTENT_TYPE, "application/json")], body)
    });
    let session = post(async |session: Session<MokaStore>| {
        session.set("user", &"someone".to_owned(), Ttl::new(3600).unwrap(), None).await.unwrap();
        "a session"
    });
    let guarded =
        Router::new().route("/charges", charges).layer(IdempotentLayer::<MokaStore>::new(options));
    let app =
        guarded
            .route("/session", session)
            .layer(SessionLayer::new(Arc::new(MokaStore::builder().build())).with_cookie_options(
                CookieOptions::build().name("session").max_age(3600).path("/"),
            ))
            .layer(CookieManagerLayer::new())
            .route(
                "/count",
                get(async move |RawQuery(query): RawQuery| {
                    peers::count(&counted, &query.unwrap_or_default())
                }),
            );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    axum::serve(listener, app).await.unwrap();
}
