//! Four idempotency layers as published articles show them, with their defects: targets that the proof must find bugs in.
//!
//! 1. Each guards `POST /charges` and `POST /refunds`; `GET /count?marker=M` tells how often `M` was executed, from a file
//!    that outlives the process.
//! 2. The header `X-Api-Key` names the caller, `Idempotency-Key` the operation. The body is JSON: `marker`, and if wanted
//!    `amount`, `slow_ms` (how long the work takes) and `fail`.
//! 3. `fail`, in the body or as `?fail=`: `before` and `after` raise before or after the effect, `decline` is a 402 without
//!    an effect.
//! 4. Nothing here is a model to follow. A handler is cancelled when its client leaves, as in the articles.

mod charges;
mod layer_a;
mod layer_b;
mod layer_c;
mod layer_d;
mod settings;

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use self::charges::{Charges, Order};
pub use self::settings::{LayerName, Settings};

/// Whatever a layer could not do.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// Serves one sample until the process ends.
pub async fn serve(listener: TcpListener, settings: Settings) -> Result<(), SampleError> {
    let charges = Charges::open(&settings)?;
    let layer = Layer::open(&settings).await?;
    let app = Router::new()
        .route("/charges", post(guarded))
        .route("/refunds", post(guarded))
        .route("/count", get(count))
        .with_state(Arc::new(Sample { layer, charges }));
    Ok(axum::serve(listener, app).await?)
}

struct Sample {
    layer: Layer,
    charges: Charges,
}

enum Layer {
    A(layer_a::RedisAndPostgres),
    B(layer_b::Postgres),
    C(layer_c::Redis),
    D(layer_d::Sqlite),
    /// Executes every request.
    None,
}

impl Layer {
    async fn open(settings: &Settings) -> Result<Self, SampleError> {
        Ok(match settings.layer {
            LayerName::A => Self::A(layer_a::RedisAndPostgres::open(settings).await?),
            LayerName::B => Self::B(layer_b::Postgres::open(settings).await?),
            LayerName::C => Self::C(layer_c::Redis::open(settings).await?),
            LayerName::D => Self::D(layer_d::Sqlite::open(&settings.sqlite)?),
            LayerName::None => Self::None,
        })
    }
}

/// A request as the layers see it.
struct Asked {
    key: String,
    caller: String,
    endpoint: String,
    body: Bytes,
    order: Order,
}

/// What a client gets.
struct Reply {
    status: u16,
    body: Value,
}

impl Reply {
    fn new(status: u16, body: Value) -> Self {
        Self { status, body }
    }

    fn refused(status: u16, why: &str) -> Self {
        Self::new(status, json!({ "error": why }))
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(header::CONTENT_TYPE, "application/json")], self.body.to_string())
            .into_response()
    }
}

async fn guarded(State(sample): State<Arc<Sample>>, request: Request) -> Reply {
    let asked = match read(request).await {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    let replied = match &sample.layer {
        Layer::A(layer) => layer.handle(&asked, &sample.charges).await,
        Layer::B(layer) => layer.handle(&asked, &sample.charges).await,
        Layer::C(layer) => layer.handle(&asked, &sample.charges).await,
        Layer::D(layer) => layer.handle(&asked, &sample.charges).await,
        Layer::None => sample.charges.charge(&asked.order).await.map_err(Into::into),
    };
    replied.unwrap_or_else(|error| Reply::refused(500, &error.to_string()))
}

async fn read(request: Request) -> Result<Asked, Reply> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|_| Reply::refused(413, "the body is too large"))?.to_bytes();
    let order = Order::read(&body, head.uri.query().unwrap_or_default())
        .ok_or_else(|| Reply::refused(400, "the body is not a JSON object"))?;
    let key = text(&head.headers, "idempotency-key")
        .ok_or_else(|| Reply::refused(400, "Idempotency-Key is missing"))?;
    let caller = text(&head.headers, "x-api-key").unwrap_or_else(|| "anonymous".to_owned());
    let endpoint = head.uri.path().trim_start_matches('/').to_owned();
    Ok(Asked { key, caller, endpoint, body, order })
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    (!value.is_empty()).then(|| value.to_owned())
}

async fn count(State(sample): State<Arc<Sample>>, RawQuery(query): RawQuery) -> String {
    let marker = query.as_deref().and_then(|query| query.strip_prefix("marker="));
    match sample.charges.count(marker.unwrap_or_default()) {
        Ok(count) => count.to_string(),
        Err(error) => error.to_string(),
    }
}

/// More than any request here has.
const BODY_BYTES_MAX: usize = 1 << 20;
