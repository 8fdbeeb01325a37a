//! Messages that are consumed once: the message is marked as seen in the transaction of its effect.

use super::{TransactionError, Transactions};
use crate::store::BoxError;

/// What became of a delivered message. Acknowledge it in both cases; after an error do not, so that it is delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed<T> {
    /// The effect is committed, and this is what the work returned.
    Done(T),
    /// An earlier delivery has done it.
    Duplicate,
}

#[cfg(feature = "sqlx")]
impl Transactions {
    /// Does `work` for a message that `consumer` has not seen yet, in one transaction of `pool`: its effect and the mark
    /// that the message was seen are committed together, or not at all. A second delivery has no effect; while the first is
    /// at work, it waits for it. `message_id` is the same at every delivery: see [`MessageId`](super::MessageId).
    ///
    /// ```no_run
    /// # use onlyonce::transaction::{Consumed, MessageId, TransactionError, Transactions};
    /// # async fn consume(transactions: Transactions, pool: &sqlx::PgPool) -> Result<(), TransactionError> {
    /// let id = MessageId::of_cloud_event("/orders", "4711");
    /// let consumed = transactions.consume(pool, "mailer", &id, async |connection| {
    ///     sqlx::query("INSERT INTO mail (customer) VALUES (1)").execute(connection).await
    /// });
    /// match consumed.await? {
    ///     Consumed::Done(_) | Consumed::Duplicate => { /* acknowledge */ }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If nothing was done, or nobody knows: do not acknowledge. The next delivery tells.
    pub async fn consume<T, E>(
        &self,
        pool: &sqlx::PgPool,
        consumer: &str,
        message_id: impl AsRef<str>,
        work: impl AsyncFnOnce(&mut sqlx::PgConnection) -> Result<T, E>,
    ) -> Result<Consumed<T>, TransactionError>
    where
        E: Into<BoxError>,
    {
        use super::over_sqlx::{failed, query, refused};
        use super::pool::{BY_DEFAULT, LEFT_OPEN, Whole};
        use sqlx::Row;

        let message_id = message_id.as_ref();
        let mut transaction = Whole::begin(pool, BY_DEFAULT).await.map_err(failed)?;
        if !self.is_first_delivery(&mut transaction, consumer, message_id).await? {
            return Ok(Consumed::Duplicate);
        }
        let done = work(&mut transaction).await;
        let done = done.map_err(|error| TransactionError::NotDone(error.into()))?;
        if transaction.has_nested() {
            return Err(TransactionError::NotDone(LEFT_OPEN.into()));
        }
        // COMMIT after an error that the work has ignored is a rollback, and says so to nobody; after a ROLLBACK of the work
        // it is nothing.
        let is_seen = query(&self.statements.is_seen).bind(consumer).bind(message_id);
        let is_seen = is_seen.fetch_one(&mut *transaction).await.map_err(failed)?;
        if !is_seen.try_get("is_seen").map_err(failed)? {
            return Err(ended_by_work());
        }
        match transaction.commit().await {
            Ok(()) => Ok(Consumed::Done(done)),
            Err(error) => Err(unsure(message_id, refused(error)?)),
        }
    }
}

#[cfg(feature = "postgres")]
impl Transactions {
    /// [`consume`](Self::consume) for tokio-postgres, in a new transaction of `client`.
    ///
    /// # Errors
    /// As [`consume`](Self::consume).
    pub async fn consume_on<T, E>(
        &self,
        client: &mut tokio_postgres::Client,
        consumer: &str,
        message_id: impl AsRef<str>,
        work: impl AsyncFnOnce(&tokio_postgres::Transaction<'_>) -> Result<T, E>,
    ) -> Result<Consumed<T>, TransactionError>
    where
        E: Into<BoxError>,
    {
        use super::over_tokio_postgres::{failed, refused};
        use tokio_postgres::types::{ToSql, Type};

        let message_id = message_id.as_ref();
        let transaction = client.transaction().await.map_err(failed)?;
        if !self.is_first_delivery_on(&transaction, consumer, message_id).await? {
            return Ok(Consumed::Duplicate);
        }
        let done = work(&transaction).await;
        let done = done.map_err(|error| TransactionError::NotDone(error.into()))?;
        let asked: [(&(dyn ToSql + Sync), Type); 2] =
            [(&consumer, Type::TEXT), (&message_id, Type::TEXT)];
        let is_seen = transaction.query_typed_one(&self.statements.is_seen, &asked).await;
        if !is_seen.map_err(failed)?.try_get("is_seen").map_err(failed)? {
            return Err(ended_by_work());
        }
        match transaction.commit().await {
            Ok(()) => Ok(Consumed::Done(done)),
            Err(error) => Err(unsure(message_id, refused(error)?)),
        }
    }
}

#[cfg(feature = "sqlite")]
impl Transactions {
    /// [`consume`](Self::consume) for rusqlite, in a new transaction of `connection`. It waits for another writer as long as
    /// the connection's `busy_timeout` says, and is an error then.
    ///
    /// # Errors
    /// As [`consume`](Self::consume).
    pub fn consume_in<T, E>(
        &self,
        connection: &mut rusqlite::Connection,
        consumer: &str,
        message_id: impl AsRef<str>,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, E>,
    ) -> Result<Consumed<T>, TransactionError>
    where
        E: Into<BoxError>,
    {
        use super::over_rusqlite::failed;

        let message_id = message_id.as_ref();
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let transaction = connection.transaction_with_behavior(behavior).map_err(failed)?;
        if !self.is_first_delivery_in(&transaction, consumer, message_id)? {
            return Ok(Consumed::Duplicate);
        }
        let done = work(&transaction).map_err(|error| TransactionError::NotDone(error.into()))?;
        if self.is_first_delivery_in(&transaction, consumer, message_id)? {
            return Err(ended_by_work());
        }
        match transaction.execute_batch("COMMIT") {
            Ok(()) => Ok(Consumed::Done(done)),
            // SQLite has refused to commit, and leaves the transaction open: it is rolled back when it is dropped.
            Err(error) if !transaction.is_autocommit() => Err(failed(error)),
            Err(error) => Err(unsure(message_id, error.into())),
        }
    }
}

fn ended_by_work() -> TransactionError {
    TransactionError::EndedByWork("the message is not marked as seen any more".into())
}

fn unsure(message_id: &str, error: BoxError) -> TransactionError {
    TransactionError::Unsure { token: message_id.to_owned(), error }
}
