//! A refund: one transaction, which the layer commits with the answer of the handler.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onlyonce::transaction::Tx;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub struct Refund {
    charge: i64,
    amount: i64,
}

/// `POST /refunds`.
pub async fn refund(
    mut tx: Tx,
    Json(refund): Json<Refund>,
) -> Result<(StatusCode, Json<Value>), Failed> {
    let left = sqlx::query_scalar!(
        r#"SELECT c.amount - coalesce((SELECT sum(r.amount)::bigint FROM refund r WHERE r.charge = c.id), 0) AS "left!"
             FROM charge c WHERE c.id = $1 FOR UPDATE"#,
        refund.charge
    );
    let left = left.fetch_optional(&mut *tx).await?.unwrap_or(0);
    if refund.amount > left {
        return Ok((StatusCode::CONFLICT, Json(json!({ "left": left }))));
    }
    let operation = tx.operation_id().to_owned();
    let saved = sqlx::query!(
        "INSERT INTO refund (operation, charge, amount) VALUES ($1, $2, $3) RETURNING id",
        operation,
        refund.charge,
        refund.amount
    );
    let id = saved.fetch_one(&mut *tx).await?.id;
    Ok((StatusCode::CREATED, Json(json!({ "refund": id, "left": left - refund.amount }))))
}

/// Rolled back, and the key is free: the client may try again.
pub struct Failed;

impl From<sqlx::Error> for Failed {
    fn from(_: sqlx::Error) -> Self {
        Self
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
