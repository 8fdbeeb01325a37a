//! idempotent 0.3 by the pattern of its README: claim, execute, complete. It is a library without an HTTP layer: the
//! statuses below are this server's own, chosen by the IETF draft. Memory store, 24 hours.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use idempotent::entry::ExistingEntry;
use idempotent::fingerprint::{DefaultFingerprintStrategy, FingerprintStrategy};
use idempotent::store::memory::MemoryStore;
use idempotent::store::{IdempotencyStore, InsertResult};
use idempotent::{CachedResponse, IdempotencyEntry, IdempotencyKey, Metadata};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn guarded(
    store: &MemoryStore,
    file: &str,
    headers: HeaderMap,
    query: &str,
    body: &[u8],
) -> (StatusCode, Bytes) {
    let refuse = |status, text: &'static str| (status, Bytes::from_static(text.as_bytes()));
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let Some(Ok(key)) = key.map(IdempotencyKey::new) else {
        return refuse(StatusCode::BAD_REQUEST, r#"{"error":"no usable key"}"#);
    };
    let fingerprint = DefaultFingerprintStrategy.compute("POST /charges", body);
    let entry = IdempotencyEntry::new(fingerprint, DAY);
    let to_complete = entry.clone();
    match store.try_insert(&key, entry).await.unwrap() {
        InsertResult::Claimed { fencing_token } => {
            let (status_code, answer) = peers::charge(file, query, body).await;
            let body = Bytes::from(answer);
            let response =
                CachedResponse { status_code, metadata: Metadata::default(), body: body.clone() };
            store.complete(&key, to_complete.complete(response), fencing_token).await.unwrap();
            (StatusCode::from_u16(status_code).unwrap(), body)
        }
        InsertResult::Exists(ExistingEntry::Completed(entry))
            if entry.fingerprint_matches(fingerprint) =>
        {
            let response = entry.into_response();
            (StatusCode::from_u16(response.status_code).unwrap(), response.body)
        }
        InsertResult::Exists(ExistingEntry::Processing(entry))
            if entry.fingerprint_matches(fingerprint) =>
        {
            refuse(StatusCode::CONFLICT, r#"{"error":"in progress"}"#)
        }
        InsertResult::Exists(_) => {
            refuse(StatusCode::UNPROCESSABLE_ENTITY, r#"{"error":"another request"}"#)
        }
    }
}

#[tokio::main]
async fn main() {
    let (port, file, _) = peers::arguments();
    let counted = file.clone();
    let store = Arc::new(MemoryStore::new(1024, Duration::from_secs(60)));
    let charges = post(async move |headers: HeaderMap, RawQuery(query): RawQuery, body: Bytes| {
        guarded(&store, &file, headers, &query.unwrap_or_default(), &body).await
    });
    let count = get(async move |RawQuery(query): RawQuery| {
        peers::count(&counted, &query.unwrap_or_default())
    });
    let app = Router::new().route("/charges", charges).route("/count", count);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    axum::serve(listener, app).await.unwrap();
}
