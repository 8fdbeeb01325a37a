//! actix-idempotent 0.1 as its README shows it: sessions in Redis, default options. `POST /session` starts a session.

use actix_idempotent::{IdempotentFactory, IdempotentOptions};
use actix_session::config::{BrowserSession, SessionLifecycle, TtlExtensionPolicy};
use actix_session::storage::RedisSessionStore;
use actix_session::{Session, SessionMiddleware};
use actix_web::cookie::{Key, SameSite};
use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data, get, post};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};

async fn charge(request: HttpRequest, body: Bytes, file: Data<String>) -> HttpResponse {
    let (status, body) = peers::charge(&file, request.query_string(), &body).await;
    HttpResponse::build(StatusCode::from_u16(status).unwrap())
        .content_type("application/json")
        .body(body)
}

async fn count(request: HttpRequest, file: Data<String>) -> String {
    peers::count(&file, request.query_string())
}

async fn session(session: Session) -> &'static str {
    session.insert("user", "someone").unwrap();
    "a session"
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let (port, file, redis) = peers::arguments();
    let store = RedisSessionStore::new(redis).await.unwrap();
    let secret = Key::generate();
    HttpServer::new(move || {
        let lifecycle = BrowserSession::default()
            .state_ttl_extension_policy(TtlExtensionPolicy::OnEveryRequest);
        App::new()
            .app_data(Data::new(file.clone()))
            .wrap(
                SessionMiddleware::builder(store.clone(), secret.clone())
                    .cookie_name("session".to_string())
                    .session_lifecycle(SessionLifecycle::BrowserSession(lifecycle))
                    .cookie_http_only(false)
                    .cookie_same_site(SameSite::Strict)
                    .build(),
            )
            .route(
                "/charges",
                post().to(charge).wrap(IdempotentFactory::new(IdempotentOptions::default())),
            )
            .route("/session", post().to(session))
            .route("/count", get().to(count))
    })
    .bind(("127.0.0.1", port))?
    .run()
    .await
}
