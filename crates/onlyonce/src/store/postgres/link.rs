//! One connection: made, checked and prepared; and a line, which makes a new one when it breaks.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{
    AsyncMessage, Client, Connection, Row, SimpleQueryMessage, Socket, Statement,
};

use super::error::{OpenError, SERVER_MIN};
use super::place::Place;
use super::row;
use super::tls::Encrypted;
use super::trouble::{Cause, Trouble};

/// A connection to a primary, with the session that our statements need.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) server: Server,
    statements: Vec<Statement>,
    pub(super) driver: JoinHandle<()>,
    /// The server warned of something since this was last asked.
    warned: Arc<AtomicBool>,
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

/// What a server calls a connection: the number of its process, and since when, because numbers come again.
#[derive(Clone, Debug)]
struct Session {
    pid: String,
    since: String,
}

impl Session {
    /// Ends it, and waits until it is gone. One that waits for a standby is waited for: ended, it would show
    /// what no standby has. A pooler may have given it to us again: then we are behind it already.
    async fn outlive(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let Self { pid, since } = self;
        let end = format!(
            "SELECT CASE WHEN wait_event IS DISTINCT FROM 'SyncRep' THEN pg_terminate_backend(pid) END
               FROM pg_stat_activity WHERE pid = {pid} AND extract(epoch FROM backend_start)::text = '{since}'
                AND pid <> pg_backend_pid()"
        );
        let is_there = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
        while client.simple_query(&end).await?.iter().any(is_there) {
            sleep(OUTLIVE_PAUSE).await;
        }
        Ok(())
    }
}

/// What a connection hears without having asked.
pub(super) type Hear = Box<dyn FnMut(&str) + Send>;

impl Link {
    /// Connects within [`CONNECT_WAIT_MAX`], and is a link only to a primary that keeps what it commits.
    pub(super) async fn connect(
        place: &Place,
        statements: &[String],
        hear: Option<Hear>,
    ) -> Result<Self, OpenError> {
        let connected = timeout(CONNECT_WAIT_MAX, Self::connect_now(place, statements, hear)).await;
        connected.unwrap_or_else(|elapsed| {
            Err(OpenError::Unreachable { place: place.name.clone(), source: elapsed.into() })
        })
    }

    async fn connect_now(
        place: &Place,
        statements: &[String],
        hear: Option<Hear>,
    ) -> Result<Self, OpenError> {
        let failed = |error| OpenError::from_client(&place.name, &place.schema, error);
        let (client, connection) = place.config.connect(place.tls.clone()).await.map_err(failed)?;
        let warned = Arc::new(AtomicBool::new(false));
        let alive = place.alive.clone();
        let driver = drive(connection, warned.clone(), hear);
        let driver = tokio::spawn(async move {
            driver.await;
            drop(alive);
        });
        let server = Server::greet(&client).await.map_err(failed)?;
        let mut link = Self { client, server, statements: Vec::new(), driver, warned };
        link.server.check(place)?;
        let prepared = statements.iter().map(|sql| link.client.prepare(sql));
        link.statements = try_join_all(prepared).await.map_err(failed)?;
        let mut columns = link.statements.iter().flat_map(Statement::columns);
        if !columns.all(|column| row::reads(column.type_())) {
            let what = "the columns of its records are not in their order";
            return Err(OpenError::Damaged { schema: place.schema.clone(), what });
        }
        Ok(link)
    }

    pub(super) async fn query(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Trouble> {
        Ok(self.client.query(&self.statements[statement], params).await?)
    }

    /// Whether the server warned: it does so when it gives up waiting for a standby and reports a commit
    /// that a failover may lose.
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::AcqRel)
    }
}

impl Link {
    /// Ends it at once: what it still does, nobody waits for. A link that is dropped says goodbye instead.
    fn cut(self) {
        self.driver.abort();
    }
}

async fn drive(
    mut connection: Connection<Socket, Encrypted>,
    warned: Arc<AtomicBool>,
    mut hear: Option<Hear>,
) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        match (message, &mut hear) {
            (AsyncMessage::Notification(heard), Some(hear)) => hear(heard.payload()),
            (AsyncMessage::Notice(_), _) => warned.store(true, Ordering::Release),
            _ => {}
        }
    }
}

impl Server {
    /// Sets up the session, and asks what the promise rests on.
    async fn greet(client: &Client) -> Result<Self, tokio_postgres::Error> {
        client.batch_execute(SESSION).await?;
        let answer = client.simple_query(ABOUT).await?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let says = |column: usize, word: &str| row.is_some_and(|row| row.get(column) == Some(word));
        let version = row.and_then(|row| row.get(1)?.parse().ok()).unwrap_or_default();
        let text = |column: usize| row.and_then(|row| row.get(column)).unwrap_or("0").to_owned();
        Ok(Self {
            session: Session { pid: text(5), since: text(6) },
            in_recovery: !says(0, "f"),
            version,
            fsync: says(2, "on"),
            full_page_writes: says(3, "on"),
            synchronous_standbys: !says(4, ""),
        })
    }

    fn check(&self, place: &Place) -> Result<(), OpenError> {
        let name = || place.name.clone();
        if self.in_recovery {
            return Err(OpenError::Standby { place: name() });
        }
        if self.version < SERVER_MIN {
            return Err(OpenError::TooOld { place: name(), found: self.version });
        }
        if !self.fsync {
            return Err(OpenError::NotDurable { place: name(), setting: "fsync" });
        }
        Ok(())
    }
}

/// Commits wait for the disk, here and on synchronous standbys; `remote_apply`, which waits for more, is
/// kept. Statements wait neither long nor for ever. Plans are made once, for a batch of any size, and by
/// index: what the table looks like when they are made is not what it looks like later.
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
    SELECT pg_is_in_recovery(), current_setting('server_version_num'), current_setting('fsync'),
           current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
           pg_backend_pid(), extract(epoch FROM (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()))";

/// A connection that is made anew when it is needed and broken.
pub(super) struct Line {
    place: Arc<Place>,
    statements: Vec<String>,
    /// What its sessions are told before anything else.
    setup: &'static str,
    /// A commit that waits for whatever its last session may have left.
    barrier: String,
    link: Option<Link>,
    /// How many connections it has lost.
    lost: u64,
    /// Its last session, which may still do what it was asked: nothing is asked of another before it is gone.
    last: Option<Session>,
    retry_at: Option<Instant>,
    pause: Duration,
    why: Option<Cause>,
}

impl Line {
    pub(super) fn new(place: Arc<Place>, statements: Vec<String>) -> Self {
        let (setup, barrier, pause) = ("", String::new(), PAUSE_MIN);
        let (link, lost, last, retry_at, why) = (None, 0, None, None, None);
        Self { place, statements, setup, barrier, link, lost, last, retry_at, pause, why }
    }

    pub(super) fn with_setup(self, setup: &'static str) -> Self {
        Self { setup, ..self }
    }

    /// What a new session must have committed before it reports anything as done: a commit whose standby
    /// nobody waited for is to be seen, and is not durable yet.
    pub(super) fn with_barrier(self, barrier: String) -> Self {
        Self { barrier, ..self }
    }

    /// Connects now, for the first time.
    pub(super) async fn open(&mut self) -> Result<(), OpenError> {
        self.link = Some(self.connect().await?);
        Ok(())
    }

    async fn connect(&self) -> Result<Link, OpenError> {
        let Place { name, schema, .. } = &*self.place;
        let link = Link::connect(&self.place, &self.statements, None).await?;
        let succeeded = timeout(SUCCEED_WAIT_MAX, self.succeed(&link.client)).await;
        let error = match succeeded {
            Ok(Ok(())) => return Ok(link),
            Ok(Err(error)) => OpenError::from_client(name, schema, error),
            Err(elapsed) => OpenError::Unreachable { place: name.clone(), source: elapsed.into() },
        };
        link.cut();
        Err(error)
    }

    /// Makes a session the only one of this line.
    async fn succeed(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        client.batch_execute(self.setup).await?;
        if let Some(last) = &self.last {
            last.outlive(client).await?;
            client.batch_execute(&self.barrier).await?;
        }
        Ok(())
    }

    /// The connection, made anew if it is broken; not more often than the pauses between tries allow. An
    /// error says that nothing was sent.
    pub(super) async fn ready(&mut self) -> Result<&Link, Trouble> {
        if self.link.as_ref().is_none_or(|link| link.client.is_closed()) {
            self.hang_up();
            if self.retry_at.is_some_and(|at| Instant::now() < at) {
                let cause = self.why.clone().unwrap_or_else(|| Cause::new("the server is away"));
                return Err(Trouble::NotDone(cause));
            }
            match self.connect().await {
                Ok(link) => {
                    (self.retry_at, self.pause, self.last) = (None, PAUSE_MIN, None);
                    self.link = Some(link);
                }
                Err(error) => {
                    self.retry_at = Some(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(PAUSE_MAX);
                    let cause = Cause::new(error);
                    self.why = Some(cause.clone());
                    return Err(Trouble::NotDone(cause));
                }
            }
        }
        self.link.as_ref().ok_or_else(|| Trouble::NotDone(Cause::new("the server is away")))
    }

    /// Gives the connection up: what it still does, nobody waits for.
    pub(super) fn hang_up(&mut self) {
        if let Some(link) = self.link.take() {
            self.last = Some(link.server.session.clone());
            self.lost += 1;
            link.cut();
        }
    }

    /// Which of its connections this is. After it there may be another server behind it.
    pub(super) const fn number(&self) -> u64 {
        self.lost
    }

    /// Runs what needs one statement, within [`ANSWER_WAIT_MAX`].
    pub(super) async fn query(
        &mut self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Trouble> {
        let link = self.ready().await?;
        let answer = bounded(link.query(statement, params)).await;
        if let Err(trouble) = &answer {
            self.after(trouble);
        }
        answer
    }

    /// A connection on which something went wrong that may not be over, or that its session caused, is not
    /// used again.
    pub(super) fn after(&mut self, trouble: &Trouble) {
        if matches!(trouble, Trouble::Unsure(_) | Trouble::Session(_)) {
            self.hang_up();
        }
    }
}

/// No answer in time is no answer.
pub(super) async fn bounded<T>(
    answer: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let elapsed = |elapsed| Err(Trouble::Unsure(Cause::new(elapsed)));
    timeout(ANSWER_WAIT_MAX, answer).await.unwrap_or_else(elapsed)
}

/// How long a connection may take to be made, checked and prepared, over all hosts.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(4);
/// How long a session may take to succeed the one before it.
const SUCCEED_WAIT_MAX: Duration = Duration::from_secs(2);
const OUTLIVE_PAUSE: Duration = Duration::from_millis(10);
/// How long a statement and its commit may take: longer than `statement_timeout`.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
