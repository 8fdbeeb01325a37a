//! One connection, checked and prepared; and a connection that is made anew when it breaks.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select, try_join_all};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row};

use super::address::ServerAddress;
use super::columns::Param;
use super::error::PostgresOpenError;
use super::server::{Server, Session};
use super::sql_error::{Cause, SqlError, cause, unclear};
use super::statement::Statement;

/// A connection to a primary, with the session that our statements need. Dropped, it ends in an orderly way.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) server: Server,
    statements: HashMap<Statement, tokio_postgres::Statement>,
    pub(super) driver: JoinHandle<()>,
    /// The server has warned since this was last asked.
    warned: Arc<AtomicBool>,
}

/// Called with each notification that comes on a connection.
pub(super) type Listener = Box<dyn FnMut(&str) + Send>;

impl Connection {
    /// Connects within [`CONNECT_WAIT_MAX`], and only to a primary that keeps what it commits.
    pub(super) async fn open(
        address: &ServerAddress,
        statements: &[Statement],
        listener: Option<Listener>,
    ) -> Result<Self, PostgresOpenError> {
        // Boxed: it is large, and part of every call that may have to reconnect.
        let connecting = Box::pin(Self::open_now(address, statements, listener));
        timeout(CONNECT_WAIT_MAX, connecting)
            .await
            .unwrap_or_else(|elapsed| Err(address.silent(elapsed)))
    }

    async fn open_now(
        address: &ServerAddress,
        statements: &[Statement],
        listener: Option<Listener>,
    ) -> Result<Self, PostgresOpenError> {
        let failed = |error| address.failed(error);
        let (client, connection) =
            address.config.connect(address.tls.clone()).await.map_err(failed)?;
        let warned = Arc::new(AtomicBool::new(false));
        let mut driver = Box::pin(drive(connection, warned.clone(), listener));
        let set_up = async {
            let server = Server::ask(&client, address).await?;
            let prepare = async |statement: &Statement| {
                let prepared = client.prepare(&statement.sql(&address.schema)).await?;
                Ok((*statement, prepared))
            };
            let prepared = try_join_all(statements.iter().map(prepare)).await.map_err(failed)?;
            Ok::<_, PostgresOpenError>((server, prepared.into_iter().collect()))
        };
        // Spawned only now: a driver whose connection is given up before it is open ends with this future.
        let set_up = match select(pin!(set_up), &mut driver).await {
            Either::Left((set_up, _)) => set_up,
            Either::Right(((), set_up)) => set_up.await,
        };
        let ((server, statements), alive) = (set_up?, address.alive.clone());
        // A warning from before the first write is about the database itself, such as the version of a collation.
        warned.store(false, Ordering::Release);
        let driver = tokio::spawn(async move {
            driver.await;
            drop(alive);
        });
        Ok(Self { client, server, statements, driver, warned })
    }

    /// Runs a statement that this connection has prepared.
    pub(super) async fn query(
        &self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, SqlError> {
        let prepared = self.statements.get(&statement);
        let prepared = prepared.expect("a connection prepares every statement that it is asked");
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
        Ok(self.client.query(prepared, &params).await?)
    }

    /// An error if the server warned: it does so when it gives up waiting for a standby and reports a commit that a
    /// failover may lose.
    pub(super) fn demand_no_warning(&self) -> Result<(), SqlError> {
        match self.warned.swap(false, Ordering::AcqRel) {
            true => Err(unclear("the server warned: a standby may not have this commit")),
            false => Ok(()),
        }
    }
}

async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    warned: Arc<AtomicBool>,
    mut listener: Option<Listener>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        match (message, &mut listener) {
            (AsyncMessage::Notification(heard), Some(listener)) => listener(heard.payload()),
            (AsyncMessage::Notice(_), _) => warned.store(true, Ordering::Release),
            _ => {}
        }
    }
}

/// A connection that is made anew when it is needed and broken. Its last session may still do what it was asked, so
/// that nothing is asked of a new one before the last one is gone.
pub(super) struct Reconnecting {
    address: Arc<ServerAddress>,
    /// What each session is told before anything else.
    setup: &'static str,
    connection: Option<Connection>,
    last: Option<Session>,
    /// Why the last try to connect failed, and when to try again.
    down: Option<(Cause, Instant)>,
}

impl Reconnecting {
    /// Connects for the first time.
    pub(super) async fn open(
        address: &Arc<ServerAddress>,
        setup: &'static str,
    ) -> Result<Self, PostgresOpenError> {
        let (connection, last, down) = (None, None, None);
        let mut opened = Self { address: address.clone(), setup, connection, last, down };
        opened.connection = Some(opened.connect().await?);
        Ok(opened)
    }

    async fn connect(&self) -> Result<Connection, PostgresOpenError> {
        let connection = Connection::open(&self.address, Statement::ALL, None).await?;
        let error = match timeout(SUCCEED_WAIT_MAX, self.succeed(&connection.client)).await {
            Ok(Ok(())) => return Ok(connection),
            Ok(Err(error)) => self.address.failed(error),
            Err(elapsed) => self.address.silent(elapsed),
        };
        connection.driver.abort();
        Err(error)
    }

    /// Ends the last session. The commit after that waits for the standbys: what the last session committed without
    /// them can be read by now, and must not be reported as done before they have it.
    async fn succeed(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if let Some(last) = &self.last {
            last.end(client).await?;
            let schema = &self.address.schema;
            let commit = format!("UPDATE {schema}.meta SET one = 1 WHERE one = 1");
            client.batch_execute(&commit).await?;
        }
        client.batch_execute(self.setup).await
    }

    /// The connection, made anew if it is broken, but not more often than every [`RETRY_PAUSE`]. An error says that
    /// nothing was sent.
    pub(super) async fn ready(&mut self) -> Result<&Connection, SqlError> {
        if self.connection.as_ref().is_some_and(|connection| connection.client.is_closed()) {
            self.hang_up();
        }
        let made = match (self.connection.take(), &self.down) {
            (Some(connection), _) => connection,
            (None, Some((why, until))) if Instant::now() < *until => {
                return Err(SqlError::NotDone(why.clone()));
            }
            (None, _) => self.connect().await.map_err(|error| {
                let why = cause(error);
                self.down = Some((why.clone(), Instant::now() + RETRY_PAUSE));
                SqlError::NotDone(why)
            })?,
        };
        (self.down, self.last) = (None, None);
        Ok(self.connection.insert(made))
    }

    /// Gives the connection up: nobody waits for what it still does.
    pub(super) fn hang_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.last = Some(connection.server.session.clone());
            connection.driver.abort();
        }
    }

    /// Runs one statement, within [`ANSWER_WAIT_MAX`].
    pub(super) async fn query(
        &mut self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, SqlError> {
        let connection = self.ready().await?;
        let answer = bounded(connection.query(statement, params)).await;
        self.judge(answer)
    }

    /// Gives the connection up if its work may not be over, or if its session is of no more use.
    pub(super) fn judge<T>(&mut self, answer: Result<T, SqlError>) -> Result<T, SqlError> {
        if let Err(SqlError::Unsure(_) | SqlError::BadSession(_)) = &answer {
            self.hang_up();
        }
        answer
    }
}

/// No answer in time is no answer.
pub(super) async fn bounded<T>(
    answer: impl Future<Output = Result<T, SqlError>>,
) -> Result<T, SqlError> {
    timeout(ANSWER_WAIT_MAX, answer).await.unwrap_or_else(|elapsed| Err(unclear(elapsed)))
}

/// How long a connection may take to be made, checked and prepared, over all hosts.
pub(super) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(4);
/// How long a session may take to succeed the one before it.
const SUCCEED_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a statement and its commit may take: longer than `statement_timeout`.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two tries to connect.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(200);
