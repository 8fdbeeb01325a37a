//! The services around: a card network and a mail service that remove duplicates by the key, and a consumer of the events
//! with our inbox.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use tokio::sync::Mutex as AsyncMutex;
use tokio_postgres::{Client, NoTls};

use crate::trigger::{Moment, Trigger};

/// What the services have done.
pub(crate) struct Others {
    pub(crate) trigger: Arc<Trigger>,
    /// Calls by service and key.
    calls: Mutex<BTreeMap<(String, String), usize>>,
    deliveries: Mutex<usize>,
    database: AsyncMutex<Client>,
}

impl Others {
    pub(crate) async fn start(url: &str, trigger: Arc<Trigger>) -> (Arc<Self>, SocketAddr) {
        let (database, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        database.batch_execute("CREATE TABLE heard (payload text NOT NULL)").await.unwrap();
        let others = Arc::new(Self {
            trigger,
            calls: Mutex::default(),
            deliveries: Mutex::default(),
            database: AsyncMutex::new(database),
        });
        let app = Router::new()
            .route("/call/{service}", post(call))
            .route("/events", post(hear))
            .with_state(others.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, app).await });
        (others, address)
    }

    /// How many keys a service has seen, and how many calls.
    pub(crate) fn counts(&self, service: &str) -> (usize, usize) {
        let calls = self.calls.lock().unwrap();
        let of = calls.iter().filter(|((name, _), _)| name == service);
        of.fold((0, 0), |(keys, all), (_, calls)| (keys + 1, all + calls))
    }

    pub(crate) fn deliveries(&self) -> usize {
        *self.deliveries.lock().unwrap()
    }
}

/// A call that is done once per key.
async fn call(
    State(others): State<Arc<Others>>,
    Path(service): Path<String>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, String) {
    if body.contains("declined") {
        return (StatusCode::PAYMENT_REQUIRED, "{}".to_owned());
    }
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let (before, after) = match service.as_str() {
        "card" => (Some(Moment::CardCalled), Moment::CardCharged),
        _ => (None, Moment::Mailed),
    };
    if before.is_some_and(|moment| others.trigger.reach(moment)) {
        std::future::pending::<()>().await;
    }
    *others.calls.lock().unwrap().entry((service, key.clone())).or_default() += 1;
    if others.trigger.reach(after) {
        std::future::pending::<()>().await;
    }
    (StatusCode::CREATED, format!(r#"{{"id": "done-{key}"}}"#))
}

/// Takes an event in the transaction of its effect.
async fn hear(State(others): State<Arc<Others>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    *others.deliveries.lock().unwrap() += 1;
    let mut database = others.database.lock().await;
    let transaction = database.transaction().await.unwrap();
    let seen = "SELECT onlyonce.seen('books', $1)";
    if transaction.query_one(seen, &[&id]).await.unwrap().get(0) {
        let payload = String::from_utf8(body.to_vec()).unwrap();
        transaction.execute("INSERT INTO heard VALUES ($1)", &[&payload]).await.unwrap();
    }
    transaction.commit().await.unwrap();
    drop(database);
    if others.trigger.reach(Moment::Published) {
        std::future::pending::<()>().await;
    }
    StatusCode::NO_CONTENT
}
