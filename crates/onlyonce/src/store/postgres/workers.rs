//! The thread of a store: all connections live on its runtime. Callers reach those that work in batches by bounded
//! queues, and run their calls there on the others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::PostgresOptions;
use super::address::ServerAddress;
use super::batch;
use super::call::{LoadCall, WriteCall};
use super::connection::{Connection, Reconnecting};
use super::error::PostgresOpenError;
use super::maintenance::{self, Maintenance};
use super::notify::{self, Notifier};
use super::queue::queue;
use super::reader::Reader;
use super::renew;
use super::schema::{self, Found, Meta};
use super::statement::Statement;
use super::writer::Writer;
use crate::scope::OperationId;
use crate::store::{Fault, StoreError};

/// What callers have of an open store.
pub(super) struct Workers {
    pub(super) writers: Vec<mpsc::Sender<WriteCall>>,
    pub(super) loads: mpsc::Sender<LoadCall>,
    pub(super) renewer: Arc<Mutex<Reconnecting>>,
    pub(super) maintenance: Arc<Mutex<Maintenance>>,
    runtime: Handle,
    /// Places for the calls that run on the two connections above.
    places: Arc<Semaphore>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) warnings: Vec<String>,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<()>,
}

impl Workers {
    /// Opens the store on a thread of its own, so that no caller's runtime waits for the network.
    pub(super) async fn start(
        address: ServerAddress,
        options: PostgresOptions,
    ) -> Result<Self, PostgresOpenError> {
        let (opened, open) = oneshot::channel();
        let (end, ended) = watch::channel(());
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(work(address, options, opened, ended)),
                Err(error) => drop(opened.send(Err(PostgresOpenError::Thread(error)))),
            }
            drop(end);
        };
        let thread = thread::Builder::new().name("onlyonce-postgres".to_owned());
        thread.spawn(run).map_err(PostgresOpenError::Thread)?;
        let died = || Err(PostgresOpenError::Thread(std::io::ErrorKind::Other.into()));
        open.await.unwrap_or_else(|_| died())
    }

    /// The writer of an id: always the same one, so that a repeated write waits behind the first.
    pub(super) fn writer(&self, id: OperationId) -> &mpsc::Sender<WriteCall> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        &self.writers[hasher.finish() as usize % self.writers.len()]
    }

    /// Runs `work` on the thread of the store, also if its caller leaves. If the thread died with it, the answer is what
    /// `lost` makes of that.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        lost: fn(StoreError) -> Fault,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        if *self.stop.borrow() {
            return Err(Fault::NotDone(StoreError::Closed));
        }
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| Fault::NotDone(StoreError::Busy))?;
        let task = self.runtime.spawn(async move {
            let answer = work.await;
            drop(place);
            answer
        });
        task.await.unwrap_or_else(|_| Err(lost(StoreError::Closed)))
    }

    /// Takes nothing more, and waits until every call is answered.
    pub(super) async fn close(&self) {
        self.stop.send_replace(true);
        let mut ended = self.ended.clone();
        // An error says that the thread dropped its end, which is what is waited for.
        while ended.changed().await.is_ok() {}
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn work(
    mut address: ServerAddress,
    options: PostgresOptions,
    opened: oneshot::Sender<Result<Workers, PostgresOpenError>>,
    ended: watch::Receiver<()>,
) {
    let (alive, mut goodbyes) = mpsc::channel(1);
    address.alive = Some(alive);
    match Opened::open(address, &options).await {
        Ok(open) => open.run(&options, opened, ended).await,
        Err(error) => drop(opened.send(Err(error))),
    }
    // Each connection says goodbye; one that cannot is not waited for.
    let _ = timeout(GOODBYE_WAIT_MAX, goodbyes.recv()).await;
}

/// A schema that is ours, and connections to it.
struct Opened {
    address: Arc<ServerAddress>,
    meta: Meta,
    warnings: Vec<String>,
    writers: Vec<Reconnecting>,
    reader: Reconnecting,
    renewer: Reconnecting,
    maintenance: Reconnecting,
}

impl Opened {
    async fn open(
        address: ServerAddress,
        options: &PostgresOptions,
    ) -> Result<Self, PostgresOpenError> {
        let mut connection = Connection::open(&address, &[], None).await?;
        demand_session(&connection, &address).await?;
        let meta = ensure(&mut connection, &address).await?;
        let warnings = warnings(&connection, &address).await;
        let address = Arc::new(address);
        let writer = |_| Reconnecting::new(&address, batch::STATEMENTS);
        let mut opened = Self {
            writers: (0..options.writers).map(writer).collect(),
            reader: Reconnecting::new(&address, &[Statement::Load]),
            renewer: Reconnecting::new(&address, renew::STATEMENTS),
            maintenance: Reconnecting::new(&address, maintenance::STATEMENTS)
                .with_setup(maintenance::SETUP),
            address,
            meta,
            warnings,
        };
        let others = [&mut opened.reader, &mut opened.renewer, &mut opened.maintenance];
        try_join_all(opened.writers.iter_mut().chain(others).map(Reconnecting::open)).await?;
        Ok(opened)
    }

    async fn run(
        self,
        options: &PostgresOptions,
        opened: oneshot::Sender<Result<Workers, PostgresOpenError>>,
        ended: watch::Receiver<()>,
    ) {
        let notifier = Arc::new(Notifier::new());
        let (stop, stopped) = watch::channel(false);
        let (mut writers, mut tasks) = (Vec::new(), Vec::new());
        for connection in self.writers {
            let (send, calls) = queue(options.queue_max, &stopped);
            writers.push(send);
            let writer = Writer { connection, calls, notifier: notifier.clone() };
            tasks.push(tokio::spawn(writer.run()));
        }
        let (loads, calls) = queue(options.queue_max, &stopped);
        tasks.push(tokio::spawn(Reader { connection: self.reader, loads: calls }.run()));
        let channel = format!("onlyonce_{}", self.meta.generation);
        let notifies = notify::run(self.address, channel, notifier.clone(), stopped);
        tasks.push(tokio::spawn(notifies));
        let (connection, swept_until) = (self.maintenance, maintenance::START);
        let maintenance = Arc::new(Mutex::new(Maintenance { connection, swept_until }));
        let renewer = Arc::new(Mutex::new(self.renewer));
        let places = Arc::new(Semaphore::new(CALLS_MAX));
        let workers = Workers {
            writers,
            loads,
            renewer: renewer.clone(),
            maintenance: maintenance.clone(),
            runtime: Handle::current(),
            places: places.clone(),
            notifier,
            warnings: self.warnings,
            stop,
            ended,
        };
        if opened.send(Ok(workers)).is_ok() {
            // A worker ends when its queue is closed and empty, and every other call has its place until it is answered.
            join_all(tasks).await;
            let _all = places.acquire_many(CALLS_MAX as u32).await;
            renewer.lock().await.hang_up();
            maintenance.lock().await.connection.hang_up();
        }
    }
}

/// Makes the schema if need be; `Err` if the schema is not for us.
pub(super) async fn ensure(
    connection: &mut Connection,
    address: &ServerAddress,
) -> Result<Meta, PostgresOpenError> {
    let failed = |error| PostgresOpenError::from_client(&address.name, &address.schema, error);
    let schema = || address.schema.clone();
    let meta =
        match schema::ensure(&mut connection.client, &address.schema).await.map_err(failed)? {
            Found::Meta(meta) => meta,
            Found::Older(found) => {
                let supported = schema::VERSION;
                return Err(PostgresOpenError::Older { schema: schema(), found, supported });
            }
            Found::Nothing | Found::NoRow => {
                return Err(PostgresOpenError::Damaged {
                    schema: schema(),
                    what: "its own row is gone",
                });
            }
        };
    if meta.oldest > schema::VERSION {
        let (found, supported) = (meta.version, schema::VERSION);
        return Err(PostgresOpenError::Newer { schema: schema(), found, supported });
    }
    match (&meta.moved_to, &meta.imported_from) {
        (Some(to), _) => Err(PostgresOpenError::Moved { schema: schema(), to: to.clone() }),
        (None, Some(from)) => {
            Err(PostgresOpenError::Importing { schema: schema(), from: from.clone() })
        }
        (None, None) => Ok(meta),
    }
}

/// Whether a session is ours for as long as the connection: settings, statements and subscriptions are
/// lost in a pooler that hands each transaction to another one.
///
/// A pooler that takes the session that has rested longest shows itself in a few questions; one that takes
/// the last one, when another connection has begun a transaction there.
async fn demand_session(
    connection: &Connection,
    address: &ServerAddress,
) -> Result<(), PostgresOpenError> {
    let failed = |error| PostgresOpenError::from_client(&address.name, &address.schema, error);
    let name = crate::hex::encode(crate::record::Token::random().as_bytes());
    let other = Connection::open(address, &[], None).await?;
    let mark = format!("SELECT set_config('onlyonce.mark', '{name}', false)");
    connection.client.batch_execute(&mark).await.map_err(failed)?;
    let mut is_ours = true;
    for _ in 0..MARK_LOOKS {
        is_ours &= has_mark(connection, &name).await;
    }
    other.client.batch_execute("BEGIN; SELECT 1").await.map_err(failed)?;
    is_ours &= has_mark(connection, &name).await;
    other.client.batch_execute("ROLLBACK").await.map_err(failed)?;
    if is_ours { Ok(()) } else { Err(PostgresOpenError::Pooled(address.name.clone())) }
}

/// A pooler without another session to give lets us wait.
async fn has_mark(connection: &Connection, name: &str) -> bool {
    let look = connection.client.simple_query("SELECT current_setting('onlyonce.mark', true)");
    let seen = timeout(MARK_WAIT_MAX, look).await;
    seen.is_ok_and(|seen| seen.is_ok_and(|seen| says(&seen, name)))
}

fn says(answer: &[tokio_postgres::SimpleQueryMessage], word: &str) -> bool {
    answer.iter().any(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0) == Some(word),
        _ => false,
    })
}

/// What its owner should know, and what no promise of ours covers.
async fn warnings(connection: &Connection, address: &ServerAddress) -> Vec<String> {
    let standbys = "SELECT EXISTS (SELECT FROM pg_stat_replication)";
    let has_standbys = connection.client.query_one_scalar(standbys, &[]).await.unwrap_or(false);
    let name = &address.name;
    let mut warnings = Vec::new();
    if !connection.server.full_page_writes {
        warnings.push(format!(
            "{name}: full_page_writes is off; unless the file system never tears a page, a power cut may lose keys"
        ));
    }
    if has_standbys && !connection.server.synchronous_standbys {
        warnings.push(format!(
            "{name}: its standbys are not synchronous; a failover may forget keys that were answered"
        ));
    }
    let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    if address.is_unverified
        && connection.client.query_one_scalar(encrypted, &[]).await.unwrap_or(false)
    {
        warnings.push(format!("{name}: nobody checked who answers there; use sslmode=verify-full"));
    }
    warnings
}

/// Renewals, and maintenance calls, that may wait.
const CALLS_MAX: usize = 64;
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(1);
const MARK_LOOKS: usize = 4;
const MARK_WAIT_MAX: Duration = Duration::from_secs(2);
