//! A charge: the card, the books, the event, the receipt.

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use onlyonce::http::Body;
use onlyonce::steps::{Finished, HttpSteps, PgDatabase, Run, Stopped};
use onlyonce::transaction::Reply;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::others::{Others, Payment};

#[derive(Serialize, Deserialize)]
pub struct Order {
    pub account: String,
    pub amount: i64,
}

/// `POST /charges`.
pub async fn take(
    State(charges): State<HttpSteps<PgDatabase, Order>>,
    head: Parts,
    Json(order): Json<Order>,
) -> Response<Body> {
    charges.answer(&head, &order).await
}

/// Each name is a point: a retry, after a crash too, goes on after the last one that was committed. A call is given a key of
/// its own, the same whenever it is made again.
pub async fn charge(
    mut run: Run<PgDatabase>,
    order: Order,
    others: Others,
) -> Result<Finished, Stopped> {
    let paid = run.call("card charged", async |key| others.charge_card(&order, &key).await);
    let payment = match paid.await? {
        Payment::Taken { id } => id,
        Payment::Declined => return run.finish(async |_| Ok(declined()?)).await,
    };
    let saved = run.step("charge saved", async |mut tx| {
        let charge = sqlx::query!(
            "INSERT INTO charge (operation, account, amount, payment) VALUES ($1, $2, $3, $4) RETURNING id",
            tx.operation_id().to_owned(), order.account, order.amount, payment
        );
        let id = charge.fetch_one(&mut *tx).await?.id;
        let event = json!({ "charged": order.amount, "charge": id }).to_string();
        tx.outbox("charges", Some(&order.account), event.as_bytes()).await?;
        Ok(id)
    });
    let id = saved.await?;
    let receipt =
        run.call("receipt mailed", async |key| others.mail_receipt(id, &order, &key).await);
    receipt.await?;
    run.finish(async |_| Ok(created(id, &payment)?)).await
}

fn created(id: i64, payment: &str) -> Result<Reply, onlyonce::transaction::ReplyError> {
    Reply::json(StatusCode::CREATED, &json!({ "charge": id, "payment": payment }))
}

fn declined() -> Result<Reply, onlyonce::transaction::ReplyError> {
    Reply::json(StatusCode::PAYMENT_REQUIRED, &json!({ "error": "the card was declined" }))
}
