//! The thread of a store: all connections live on its runtime. Callers reach those that work in batches by bounded
//! queues, and run their calls there on the others.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use futures_util::future::{join, join_all, try_join_all};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::PostgresOptions;
use super::address::ServerAddress;
use super::connection::Reconnecting;
use super::error::PostgresOpenError;
use super::maintenance::{self, Maintenance};
use super::member::Member;
use super::noted::OwnChain;
use super::notify::{self, Notifier};
use super::schema::{self, Missing};
use super::worker::Worker;
use crate::record::Token;
use crate::runtime_thread::RuntimeThread;
use crate::scope::OperationId;
use crate::store::audit::WriterId;

/// How callers reach the connections of an open store.
pub(super) struct Workers {
    pub(super) writers: Vec<mpsc::Sender<Member>>,
    pub(super) reader: mpsc::Sender<Member>,
    pub(super) renewer: Arc<Mutex<Reconnecting>>,
    pub(super) maintenance: Arc<Mutex<Maintenance>>,
    /// A permit for each call that may wait for the maintenance connection.
    pub(super) room: Arc<Semaphore>,
    /// A permit for each renewal that may wait: renewals have their own, so that calls of operators cannot crowd them out.
    pub(super) renewals: Arc<Semaphore>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) warnings: Vec<String>,
    pub(super) address: Arc<ServerAddress>,
}

impl Workers {
    /// Opens the store on a thread of its own, so that no caller's runtime waits for the network.
    pub(super) async fn start(
        address: ServerAddress,
        options: PostgresOptions,
    ) -> Result<(RuntimeThread, Self), PostgresOpenError> {
        let (opened, open) = oneshot::channel();
        let work = |stop| work(address, options, stop, opened);
        let thread = RuntimeThread::start("onlyonce-postgres", work);
        let thread = thread.map_err(PostgresOpenError::Thread)?;
        let died = |_| Err(PostgresOpenError::Thread(std::io::ErrorKind::Other.into()));
        Ok((thread, open.await.unwrap_or_else(died)?))
    }

    /// The writer of an id: always the same one, so that a repeated write waits behind the first.
    pub(super) fn writer(&self, id: OperationId) -> &mpsc::Sender<Member> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        &self.writers[hasher.finish() as usize % self.writers.len()]
    }
}

async fn work(
    address: ServerAddress,
    options: PostgresOptions,
    stop: watch::Receiver<bool>,
    opened: oneshot::Sender<Result<Workers, PostgresOpenError>>,
) {
    let (workers, tasks) = match open(address, &options, stop).await {
        Ok(open) => open,
        Err(error) => return drop(opened.send(Err(error))),
    };
    let (room, renewals) = (workers.room.clone(), workers.renewals.clone());
    if opened.send(Ok(workers)).is_ok() {
        // A worker ends when its queue is closed and empty; every other call has its permit until it is answered.
        join_all(tasks).await;
        let _all = join(room.acquire_many(CALLS_MAX), renewals.acquire_many(CALLS_MAX)).await;
    }
}

/// Makes the schema if need be, and the connections to it, each with its task.
async fn open(
    address: ServerAddress,
    options: &PostgresOptions,
    stop: watch::Receiver<bool>,
) -> Result<(Workers, Vec<JoinHandle<()>>), PostgresOpenError> {
    let (id, warnings) = schema::enter(&address, Missing::Make).await?;
    let (address, notifier) = (Arc::new(address), Arc::new(Notifier::default()));
    let connect = || Reconnecting::open(&address);
    let (writers, reader, renewer, connection) = tokio::try_join!(
        try_join_all((0..options.writers).map(|_| connect())),
        connect(),
        connect(),
        connect(),
    )?;
    let mut tasks = Vec::new();
    let mut start = |(connection, chain)| {
        let (queue, calls) = mpsc::channel(options.queue_max);
        let (stop, notifier, waiting) = (stop.clone(), notifier.clone(), VecDeque::new());
        let worker = Worker { connection, calls, stop, notifier, chain, waiting };
        tasks.push(tokio::spawn(worker.run()));
        queue
    };
    let store = *Token::random().as_bytes();
    let chain = |number| options.audit.map(|_| OwnChain::new(WriterId::new(store, number)));
    let reader = start((reader, None));
    let writers = writers.into_iter().zip((0..).map(chain)).map(start).collect();
    let (schema, swept_until) = (address.schema.clone(), maintenance::START);
    let chain = chain(MAINTENANCE_CHAIN);
    let maintenance = Maintenance { connection, schema, swept_until, chain };
    let channel = format!("onlyonce_{id}");
    tasks.push(tokio::spawn(notify::run(address.clone(), channel, notifier.clone(), stop)));
    let workers = Workers {
        writers,
        reader,
        renewer: Arc::new(Mutex::new(renewer)),
        maintenance: Arc::new(Mutex::new(maintenance)),
        room: Arc::new(Semaphore::new(CALLS_MAX as usize)),
        renewals: Arc::new(Semaphore::new(CALLS_MAX as usize)),
        notifier,
        warnings,
        address,
    };
    Ok((workers, tasks))
}

/// Renewals that may wait, and maintenance calls.
const CALLS_MAX: u32 = 64;
/// The number of the maintenance connection's chain: after those of the writers.
const MAINTENANCE_CHAIN: u8 = u8::MAX;
