//! One connection, checked and prepared; and a connection that is made anew when it breaks.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage};

use super::address::ServerAddress;
use super::columns::Param;
use super::error::{PostgresOpenError, SERVER_MIN};
use super::sql_error::{Cause, SqlError, cause};
use super::statement::Statement;

/// A connection to a primary, with the session that our statements need.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) server: Server,
    statements: Vec<(Statement, tokio_postgres::Statement)>,
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
        let connecting = Self::open_now(address, statements, listener);
        timeout(CONNECT_WAIT_MAX, connecting).await.unwrap_or_else(|elapsed| {
            Err(PostgresOpenError::Unreachable {
                address: address.name.clone(),
                source: elapsed.into(),
            })
        })
    }

    async fn open_now(
        address: &ServerAddress,
        statements: &[Statement],
        listener: Option<Listener>,
    ) -> Result<Self, PostgresOpenError> {
        let failed = |error| PostgresOpenError::from_client(&address.name, &address.schema, error);
        let (client, connection) =
            address.config.connect(address.tls.clone()).await.map_err(failed)?;
        let warned = Arc::new(AtomicBool::new(false));
        let driver = drive(connection, warned.clone(), listener);
        let alive = address.alive.clone();
        let driver = tokio::spawn(async move {
            driver.await;
            drop(alive);
        });
        let mut until_open = AbortOnDrop(Some(driver.abort_handle()));
        let server = Server::ask(&client).await.map_err(failed)?;
        server.check(address)?;
        let prepare = async |statement: &Statement| {
            let prepared = client.prepare(&statement.sql(&address.schema)).await?;
            Ok::<_, tokio_postgres::Error>((*statement, prepared))
        };
        let statements = try_join_all(statements.iter().map(prepare)).await.map_err(failed)?;
        until_open.0 = None;
        Ok(Self { client, server, statements, driver, warned })
    }

    /// Runs a statement that this connection has prepared.
    pub(super) async fn query(
        &self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, SqlError> {
        let prepared = self.statements.iter().find(|(prepared, _)| *prepared == statement);
        let (_, prepared) =
            prepared.expect("a connection prepares every statement that it is asked");
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
        Ok(self.client.query(prepared, &params).await?)
    }

    /// Whether the server warned: it does so when it gives up waiting for a standby and reports a commit that a
    /// failover may lose.
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::AcqRel)
    }

    /// Ends the connection at once: nobody waits for what it still does. One that is dropped ends in an orderly way.
    fn cut(self) {
        self.driver.abort();
    }
}

/// Ends the driver of a connection that is given up before it is open: nobody else would.
struct AbortOnDrop(Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(driver) = &self.0 {
            driver.abort();
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

/// What a server said of itself.
#[derive(Clone, Debug)]
pub(super) struct Server {
    version: i32,
    in_recovery: bool,
    fsync: bool,
    pub(super) full_page_writes: bool,
    pub(super) synchronous_standbys: bool,
    session: Session,
}

impl Server {
    /// Sets up the session, and asks for the settings that the promise rests on.
    async fn ask(client: &Client) -> Result<Self, tokio_postgres::Error> {
        client.batch_execute(SESSION).await?;
        let answer = client.simple_query(ABOUT).await?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |name: &str| row.and_then(|row| row.get(name)).unwrap_or_default().to_owned();
        Ok(Self {
            session: Session { pid: text("pid"), since: text("since") },
            in_recovery: text("in_recovery") != "f",
            version: text("version").parse().unwrap_or_default(),
            fsync: text("fsync") == "on",
            full_page_writes: text("full_page_writes") == "on",
            synchronous_standbys: !text("standbys").is_empty(),
        })
    }

    fn check(&self, address: &ServerAddress) -> Result<(), PostgresOpenError> {
        let address = address.name.clone();
        match () {
            () if self.in_recovery => Err(PostgresOpenError::Standby(address)),
            () if self.version < SERVER_MIN => {
                Err(PostgresOpenError::TooOld { address, found: self.version })
            }
            () if !self.fsync => Err(PostgresOpenError::NotDurable { address, setting: "fsync" }),
            () => Ok(()),
        }
    }
}

/// Commits wait for the disk, here and on synchronous standbys; `remote_apply`, which waits for more, is kept. No
/// statement waits long. Plans are made once, for a batch of any size, and by index: the table is not what it was when
/// they were made.
const SESSION: &str = "
    SELECT set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
    SET lock_timeout = 2000;
    SET statement_timeout = 4000;
    SET idle_in_transaction_session_timeout = 10000;
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off;
    SET default_transaction_deferrable = off;
    SET client_min_messages = warning;
    SET plan_cache_mode = force_generic_plan;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_memoize = off;
    SET jit = off";
const ABOUT: &str = "
    SELECT pg_is_in_recovery() AS in_recovery, current_setting('server_version_num') AS version,
           current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
           current_setting('synchronous_standby_names') AS standbys, pid,
           extract(epoch FROM backend_start)::text AS since
      FROM pg_stat_activity WHERE pid = pg_backend_pid()";

/// A session as the server names it: the id of its process, and since when, because ids come again.
#[derive(Clone, Debug)]
struct Session {
    pid: String,
    since: String,
}

impl Session {
    /// Ends the session, and waits until it is gone. One that waits for a standby is waited for: killing it would
    /// expose a commit that no standby has. A pooler may have given us the very session: then it has ended its work.
    async fn end(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let Self { pid, since } = self;
        let end = format!(
            "SELECT CASE WHEN wait_event IS DISTINCT FROM 'SyncRep' THEN pg_terminate_backend(pid) END
               FROM pg_stat_activity WHERE pid = {pid} AND extract(epoch FROM backend_start)::text = '{since}'
                AND pid <> pg_backend_pid()"
        );
        let is_there = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
        while client.simple_query(&end).await?.iter().any(is_there) {
            sleep(END_PAUSE).await;
        }
        Ok(())
    }
}

/// A connection that is made anew when it is needed and broken. Its last session may still do what it was asked, so
/// that nothing is asked of a new one before the last one is gone.
pub(super) struct Reconnecting {
    address: Arc<ServerAddress>,
    statements: &'static [Statement],
    /// What each session is told before anything else.
    setup: &'static str,
    connection: Option<Connection>,
    last: Option<Session>,
    retry_at: Option<Instant>,
    pause: Duration,
    why: Option<Cause>,
}

impl Reconnecting {
    pub(super) fn new(address: &Arc<ServerAddress>, statements: &'static [Statement]) -> Self {
        let (connection, last, retry_at, why) = (None, None, None, None);
        let (address, setup, pause) = (address.clone(), "", PAUSE_MIN);
        Self { address, statements, setup, connection, last, retry_at, pause, why }
    }

    pub(super) fn with_setup(self, setup: &'static str) -> Self {
        Self { setup, ..self }
    }

    /// Connects now, for the first time.
    pub(super) async fn open(&mut self) -> Result<(), PostgresOpenError> {
        self.connection = Some(self.connect().await?);
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, PostgresOpenError> {
        let ServerAddress { name, schema, .. } = &*self.address;
        let connection = Connection::open(&self.address, self.statements, None).await?;
        let error = match timeout(SUCCEED_WAIT_MAX, self.succeed(&connection.client)).await {
            Ok(Ok(())) => return Ok(connection),
            Ok(Err(error)) => PostgresOpenError::from_client(name, schema, error),
            Err(elapsed) => {
                PostgresOpenError::Unreachable { address: name.clone(), source: elapsed.into() }
            }
        };
        connection.cut();
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

    /// The connection, made anew if it is broken; not more often than the pauses between tries allow. An error says
    /// that nothing was sent.
    pub(super) async fn ready(&mut self) -> Result<&Connection, SqlError> {
        if self.connection.as_ref().is_none_or(|connection| connection.client.is_closed()) {
            self.hang_up();
            if let (Some(at), Some(why)) = (self.retry_at, &self.why)
                && Instant::now() < at
            {
                return Err(SqlError::NotDone(why.clone()));
            }
            match self.connect().await {
                Ok(connection) => {
                    (self.retry_at, self.pause, self.last) = (None, PAUSE_MIN, None);
                    self.connection = Some(connection);
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.connection.as_ref().ok_or_else(|| SqlError::NotDone(cause("the server is away")))
    }

    fn failed(&mut self, error: PostgresOpenError) -> SqlError {
        let cause = cause(error);
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.why = Some(cause.clone());
        SqlError::NotDone(cause)
    }

    /// Gives the connection up: nobody waits for what it still does.
    pub(super) fn hang_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.last = Some(connection.server.session.clone());
            connection.cut();
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
    let elapsed = |elapsed| Err(SqlError::Unsure(cause(elapsed)));
    timeout(ANSWER_WAIT_MAX, answer).await.unwrap_or_else(elapsed)
}

/// The server warns when it gave up waiting for its standby, and reports the commit nevertheless.
pub(super) const NO_STANDBY: &str = "the server warned: a standby may not have this commit";
/// How long a connection may take to be made, checked and prepared, over all hosts.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(4);
/// How long a session may take to succeed the one before it.
const SUCCEED_WAIT_MAX: Duration = Duration::from_secs(2);
const END_PAUSE: Duration = Duration::from_millis(10);
/// How long a statement and its commit may take: longer than `statement_timeout`.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
