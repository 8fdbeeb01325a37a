//! Where the transaction of a request is while the handler does not have it.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use sqlx::{PgConnection, PgPool};

use crate::policy::Policy;
use crate::problem::Problem;
use crate::scope::OperationId;
use crate::transaction::{SqlxTx, TransactionError};

/// The transaction of the request, as an extractor of axum. It is a connection for your own statements: `&mut *tx`.
///
/// It has no `commit`: the layer of [`Transactions::layer`](crate::transaction::Transactions::layer) commits when the
/// handler has answered, or rolls back: see [`Ending`](super::Ending). A handler that keeps it beyond its answer gets a 500,
/// and nothing is committed.
///
/// On a request without a key it is refused with 400; on a route without the layer with 500.
///
/// ```compile_fail,E0599
/// # async fn charge(tx: onlyonce::transaction::Tx) {
/// tx.commit().await; // the layer commits, with the answer
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # async fn charge(tx: onlyonce::transaction::Tx) {
/// tx.complete(onlyonce::transaction::Reply::new(http::StatusCode::OK, "")).await; // the answer is what the handler returns
/// # }
/// ```
#[must_use = "the work is done on it"]
pub struct Tx {
    /// Empty only while it is dropped.
    tx: Option<SqlxTx>,
    slot: Arc<Slot>,
}

impl Tx {
    /// Adds a message to the operation: see [`SqlxTx::outbox`].
    ///
    /// # Errors
    /// As [`SqlxTx::outbox`].
    pub async fn outbox(
        &mut self,
        topic: &str,
        key: Option<&str>,
        payload: &[u8],
    ) -> Result<String, TransactionError> {
        self.inner_mut().outbox(topic, key, payload).await
    }

    /// The operation's id: the same at every attempt. As a unique column of the business table it is the last line of
    /// defence.
    pub fn operation_id(&self) -> &str {
        self.inner().operation_id()
    }

    fn inner(&self) -> &SqlxTx {
        self.tx.as_ref().expect("it is there until it is dropped")
    }

    fn inner_mut(&mut self) -> &mut SqlxTx {
        self.tx.as_mut().expect("it is there until it is dropped")
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.inner()
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.inner_mut()
    }
}

/// Gives the transaction back to the layer.
impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take() {
            self.slot.give_back(tx);
        }
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("tx", &self.tx).finish_non_exhaustive()
    }
}

impl<S: Sync> FromRequestParts<S> for Tx {
    type Rejection = Response;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Response> {
        if let Some(slot) = head.extensions.get::<Arc<Slot>>() {
            let tx = slot.take();
            return match tx {
                Some(tx) => Ok(Self { tx: Some(tx), slot: slot.clone() }),
                None => Err(misused("a handler takes one Tx, and this request's is taken")),
            };
        }
        match head.extensions.get::<Unkeyed>() {
            Some(Unkeyed(policy)) => {
                Err(Problem::key_missing(policy).response(policy).into_response())
            }
            None => Err(misused("a handler takes a Tx on a route or method without the layer")),
        }
    }
}

fn misused(why: &'static str) -> Response {
    tracing::error!("{why}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Among the extensions of a request that the layer passes on without a key.
#[derive(Clone)]
pub(super) struct Unkeyed(pub(super) Arc<Policy>);

/// Among the extensions of a request: its transaction.
#[derive(Debug)]
pub(super) struct Slot {
    /// The operation and the tables that have it, for a layer further in.
    id: OperationId,
    tables: Arc<Tables>,
    place: Mutex<Place>,
    was_taken: AtomicBool,
}

/// Which tables have the operations of a layer, by the address of their database and their schema: pools cannot be
/// compared, and two of them may be of one database.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tables {
    host: String,
    socket: Option<PathBuf>,
    port: u16,
    database: String,
    schema: String,
}

impl Tables {
    pub(super) fn of(pool: &PgPool, schema: &str) -> Self {
        let options = pool.connect_options();
        Self {
            host: options.get_host().to_owned(),
            socket: options.get_socket().cloned(),
            port: options.get_port(),
            // Postgres takes the user's name for that of the database where there is none.
            database: options.get_database().unwrap_or_else(|| options.get_username()).to_owned(),
            schema: schema.to_owned(),
        }
    }
}

#[derive(Debug)]
enum Place {
    Here(Box<SqlxTx>),
    Taken,
    /// The answer is there: what comes back now is rolled back.
    Closed,
}

impl Slot {
    pub(super) fn new(id: OperationId, tables: Arc<Tables>, tx: SqlxTx) -> Arc<Self> {
        let place = Mutex::new(Place::Here(Box::new(tx)));
        Arc::new(Self { id, tables, place, was_taken: AtomicBool::new(false) })
    }

    /// Whether the handler has ever had the transaction. If not, it has done nothing in it.
    pub(super) fn was_taken(&self) -> bool {
        self.was_taken.load(Ordering::SeqCst)
    }

    /// Whether another layer runs the operation of this request already, in the same tables.
    pub(super) fn is_executed(head: &Parts, id: OperationId, tables: &Tables) -> bool {
        let outer = head.extensions.get::<Arc<Self>>();
        outer.is_some_and(|outer| outer.id == id && *outer.tables == *tables)
    }

    /// The transaction, at the end of the request; `None` if the handler still has it.
    pub(super) fn close(&self) -> Option<SqlxTx> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *place, Place::Closed) {
            Place::Here(tx) => Some(*tx),
            Place::Taken | Place::Closed => None,
        }
    }

    fn take(&self) -> Option<SqlxTx> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Here(tx) => {
                self.was_taken.store(true, Ordering::SeqCst);
                Some(*tx)
            }
            other => {
                *place = other;
                None
            }
        }
    }

    fn give_back(&self, tx: SqlxTx) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*place, Place::Taken) {
            *place = Place::Here(Box::new(tx));
        }
    }
}
