//! The transactional mode as a tower layer: a handler takes a [`Tx`], and the layer commits it with the answer.
//!
//! 1. The key is found, refused, scoped and compared by the same rules as in [`Once::layer`](crate::Once::layer), and the
//!    answers to the client are the same.
//! 2. The answer of the handler decides: [`Ending`] has the table. Nothing of the answer is sent before it is committed.
//! 3. A serialization failure or a deadlock runs the handler again, from its start, with the same request; so does a refusal
//!    that it has made of an error of the database, until it comes again and again. Everything else that goes wrong rolls back,
//!    so that the key is free and a retry runs.
//! 4. The work runs in a task of its own: a client that hangs up changes nothing. A duplicate that waits does so on the
//!    connection of its client, and leaves with it.
//!
//! The handler may run several times, of which one is committed: it must not call other services. The layer always
//! enforces its policy: there is no observing.

mod answer;
mod begin;
mod doubts;
mod service;
mod slot;
mod told;
mod without_tx;
mod work;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use sqlx::PgPool;
use tower_layer::Layer;
use tower_service::Service;

pub use self::answer::Ending;
pub use self::slot::Tx;

use self::service::Story;
use self::slot::Tables;
use super::Transactions;
use super::last_line::OperationColumn;
use super::statements::Statements;
use crate::http::{Body, Who};
use crate::once::{Limits, Room, Waiters};
use crate::policy::{Mode, Policy};
use crate::store::BoxError;

impl Transactions {
    /// A layer that runs each keyed request in a transaction of `pool`, and commits that with the answer.
    ///
    /// `principal_of_caller` says who asks, and the path is the one that the client sent, as for
    /// [`Once::layer`](crate::Once::layer). `policy.in_flight` says whether a duplicate waits; nothing holds a connection
    /// meanwhile.
    ///
    /// ```no_run
    /// use axum::{Router, http::StatusCode, http::request::Parts, routing::post};
    /// use onlyonce::transaction::{Transactions, Tx};
    /// use onlyonce::{Policy, scope::Principal};
    ///
    /// async fn charge(mut tx: Tx) -> Result<(StatusCode, &'static str), StatusCode> {
    ///     let operation = tx.operation_id().to_owned();
    ///     sqlx::query("INSERT INTO charge (operation, amount) VALUES ($1::uuid, 7998)")
    ///         .bind(operation)
    ///         .execute(&mut *tx)
    ///         .await
    ///         .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?; // rolled back, and the key is free
    ///     Ok((StatusCode::CREATED, "charged")) // committed, with this answer
    /// }
    ///
    /// fn caller(head: &Parts) -> Option<Principal> {
    ///     let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
    ///     Some(Principal::of("api-key", api_key.as_bytes()))
    /// }
    ///
    /// fn app(pool: sqlx::PgPool) -> Router {
    ///     let layer = Transactions::new().layer(pool, caller, Policy::payments());
    ///     Router::new().route("/charges", post(charge)).layer(layer)
    /// }
    /// ```
    pub fn layer<F, W>(
        &self,
        pool: PgPool,
        principal_of_caller: F,
        policy: Policy,
    ) -> TransactionLayer
    where
        F: Fn(&Parts) -> W + Send + Sync + 'static,
        W: Into<Who>,
    {
        let statement_limit = policy.upstream_timeout().saturating_add(STATEMENT_MARGIN);
        let statements = Arc::new(self.statements.with_statement_limit(statement_limit));
        TransactionLayer {
            rules: Arc::new(Rules {
                tables: Arc::new(Tables::of(&pool, &statements.schema)),
                statements,
                pool,
                identify: Arc::new(move |head| principal_of_caller(head).into()),
                policy: Arc::new(policy.with_mode(Mode::Enforce)),
                room: Arc::new(Room::new(&Limits::default())),
                waiters: Arc::new(Waiters::new(Limits::default())),
                column: None,
            }),
        }
    }
}

/// Makes any service a [`Transacted`] one. See [`Transactions::layer`].
#[derive(Clone, Debug)]
pub struct TransactionLayer {
    rules: Arc<Rules>,
}

impl TransactionLayer {
    /// Bounds the requests under way, the bytes of their bodies and the duplicates that wait. Default:
    /// [`Limits::default`], of which only `executing_max`, `bodies_bytes_max` and the limits of waiters count here. Past a
    /// limit a request is refused with 503, and a duplicate that would wait with 409.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        let (room, waiters) = (Arc::new(Room::new(&limits)), Arc::new(Waiters::new(limits)));
        Self { rules: Arc::new(Rules { room, waiters, ..(*self.rules).clone() }) }
    }

    /// Names the unique column of your business table that has the operation's id: the last line of defence. If a statement
    /// of the handler fails and this column has the operation already, the operation was done before and its record is gone:
    /// the answer is 409, not the 500 of the handler. Default: none. `table` may name its schema: `shop.charge`.
    #[must_use]
    pub fn with_operation_column(self, table: &str, column: &str) -> Self {
        let column = Some(OperationColumn::new(table, column));
        Self { rules: Arc::new(Rules { column, ..(*self.rules).clone() }) }
    }
}

impl<S> Layer<S> for TransactionLayer {
    type Service = Transacted<S>;

    fn layer(&self, inner: S) -> Transacted<S> {
        Transacted { rules: self.rules.clone(), inner }
    }
}

/// The rules of one layer.
#[derive(Clone)]
struct Rules {
    statements: Arc<Statements>,
    pool: PgPool,
    tables: Arc<Tables>,
    identify: Arc<dyn Fn(&Parts) -> Who + Send + Sync>,
    policy: Arc<Policy>,
    room: Arc<Room>,
    waiters: Arc<Waiters>,
    column: Option<OperationColumn>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// A service whose keyed requests are transactions. See [`Transactions::layer`].
#[derive(Clone, Debug)]
pub struct Transacted<S> {
    rules: Arc<Rules>,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for Transacted<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `poll_ready` was called on this service, not on its clone: call this one, and keep the clone.
        let unready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, unready);
        let story = Story { rules: self.rules.clone(), inner };
        Box::pin(story.tell(request))
    }
}

/// How much longer than its request a statement may run: the request is to end first, and to be told so.
const STATEMENT_MARGIN: Duration = Duration::from_secs(1);
