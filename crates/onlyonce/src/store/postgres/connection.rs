//! One connection, checked and prepared; and a connection that is made anew when it breaks.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, ToStatement};

use super::address::ServerAddress;
use super::columns::{Param, given};
use super::error::PostgresOpenError;
use super::identity;
use super::server::{Server, Session};
use super::sql_error::{Cause, SqlError, cause, unclear};
use super::statement::Statement;
use super::value::Hidden;

/// A connection to a primary, with the session that our statements need. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) server: Server,
    pub(super) prepared: Vec<tokio_postgres::Statement>,
    /// One task, which ends with the connection. Dropping it closes the connection at once, also while answers are due.
    pub(super) driver: JoinSet<()>,
    /// The server has warned since this was last asked.
    warned: Arc<AtomicBool>,
}

/// A connection whose session is not set up yet.
pub(super) struct Line {
    pub(super) client: Client,
    driver: JoinSet<()>,
    warned: Arc<AtomicBool>,
}

impl Line {
    /// Connects within [`CONNECT_WAIT_MAX`].
    pub(super) async fn open(
        address: &ServerAddress,
        listener: Option<Listener>,
    ) -> Result<Self, PostgresOpenError> {
        let opened = timeout(CONNECT_WAIT_MAX, Self::connect(address, listener)).await;
        opened.unwrap_or_else(|elapsed| Err(address.silent(elapsed)))
    }

    async fn connect(
        address: &ServerAddress,
        listener: Option<Listener>,
    ) -> Result<Self, PostgresOpenError> {
        let connected = address.config.connect(address.tls.clone()).await;
        let (client, connection) = connected.map_err(|error| address.failed(error))?;
        let (warned, mut driver) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        driver.spawn(drive(connection, warned.clone(), listener));
        Ok(Self { client, driver, warned })
    }

    /// Sets the session up within [`CONNECT_WAIT_MAX`], on a primary that keeps what it commits; prepares `statements`.
    pub(super) async fn set_up(
        self,
        address: &ServerAddress,
        statements: &[String],
    ) -> Result<Connection, PostgresOpenError> {
        // Boxed: it is large, and part of every call that may have to reconnect.
        let set_up = timeout(CONNECT_WAIT_MAX, Box::pin(self.prepare(address, statements))).await;
        set_up.unwrap_or_else(|elapsed| Err(address.silent(elapsed)))
    }

    async fn prepare(
        self,
        address: &ServerAddress,
        statements: &[String],
    ) -> Result<Connection, PostgresOpenError> {
        let Self { client, driver, warned } = self;
        let server = Server::ask(&client, address).await?;
        let prepared = try_join_all(statements.iter().map(|sql| client.prepare(sql))).await;
        let prepared = prepared.map_err(|error| address.failed(error))?;
        // A warning from before the first write is about the database itself, such as the version of a collation.
        warned.store(false, Ordering::Release);
        Ok(Connection { client, server, prepared, driver, warned })
    }
}

/// Called with each notification that comes on a connection.
pub(super) type Listener = Box<dyn FnMut(&str) + Send>;

impl Connection {
    /// Connects within [`CONNECT_WAIT_MAX`], and only to a primary that keeps what it commits; prepares `statements`.
    pub(super) async fn open(
        address: &ServerAddress,
        statements: &[String],
        listener: Option<Listener>,
    ) -> Result<Self, PostgresOpenError> {
        let opening = async {
            let line = Line::connect(address, listener).await?;
            line.prepare(address, statements).await
        };
        // Boxed: it is large, and part of every call that may have to reconnect.
        let opened = timeout(CONNECT_WAIT_MAX, Box::pin(opening)).await;
        opened.unwrap_or_else(|elapsed| Err(address.silent(elapsed)))
    }

    /// Runs a statement, one of [`prepared`](Self::prepared) or a text, with parameters that are not logged.
    pub(super) async fn query<'a>(
        &self,
        statement: &(impl ToStatement + ?Sized),
        params: impl IntoIterator<Item = &'a (dyn ToSql + Sync)>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let hidden: Vec<_> = params.into_iter().map(Hidden).collect();
        let params: Vec<_> = hidden.iter().map(|param| param as &(dyn ToSql + Sync)).collect();
        self.client.query(statement, &params).await
    }

    /// Runs a statement of a connection that has prepared [all](Statement::ALL) of them.
    pub(super) async fn run(
        &self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, SqlError> {
        Ok(self.query(&self.prepared[statement as usize], given(params)).await?)
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

/// A connection that is replaced when it is broken and the next call needs it. The old session may still do what it was
/// asked, so the new one is not used before the old one is gone.
pub(super) struct Reconnecting {
    address: Arc<ServerAddress>,
    connection: Option<Connection>,
    last: Option<Session>,
    /// Why the last try to connect failed, and when to try again.
    down: Option<(Cause, Instant)>,
}

impl Reconnecting {
    /// Connects for the first time.
    pub(super) async fn open(address: &Arc<ServerAddress>) -> Result<Self, PostgresOpenError> {
        let mut opened =
            Self { address: address.clone(), connection: None, last: None, down: None };
        opened.connection = Some(opened.connect().await?);
        Ok(opened)
    }

    async fn connect(&self) -> Result<Connection, PostgresOpenError> {
        let address = &self.address;
        let statements = Statement::ALL.iter().map(|statement| statement.sql(&address.schema));
        let connection = Connection::open(address, &statements.collect::<Vec<_>>(), None).await?;
        let found = timeout(SUCCEED_WAIT_MAX, identity::ask(&connection.client, &address.schema));
        let found = found.await.map_err(|elapsed| address.silent(elapsed))?;
        address.identity.set(found.map_err(|error| address.failed(error))?);
        let succeeded = timeout(SUCCEED_WAIT_MAX, self.succeed(&connection.client)).await;
        succeeded
            .map_err(|elapsed| address.silent(elapsed))?
            .map_err(|error| address.failed(error))?;
        Ok(connection)
    }

    /// Ends the last session. The commit after that waits for the standbys: what the last session committed without
    /// them can be read by now, and must not be reported as done before they have it.
    async fn succeed(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let Some(last) = &self.last else { return Ok(()) };
        last.end(client).await?;
        let commit = format!("UPDATE {}.meta SET one = 1 WHERE one = 1", self.address.schema);
        client.batch_execute(&commit).await
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

    /// Drops the connection, and remembers its session, which may still be at work.
    pub(super) fn hang_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.last = Some(connection.server.session);
        }
    }

    /// Runs one statement, within [`ANSWER_WAIT_MAX`].
    pub(super) async fn query(
        &mut self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, SqlError> {
        let connection = self.ready().await?;
        let answer = bounded(connection.run(statement, params)).await;
        self.judge(answer)
    }

    /// Drops the connection if the server may still be at work on it, or if its session is of no more use.
    pub(super) fn judge<T>(&mut self, answer: Result<T, SqlError>) -> Result<T, SqlError> {
        if let Err(SqlError::Unsure(_) | SqlError::BadSession(_)) = &answer {
            self.hang_up();
        }
        answer
    }
}

/// An answer that does not come within [`ANSWER_WAIT_MAX`] is unsure: the server may still do what it was asked.
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
pub(super) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two tries to connect.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(200);
