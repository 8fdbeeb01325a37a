//! A connection to the caller's SQLite file, on a thread of its own: SQLite blocks.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use tokio::sync::{mpsc, oneshot};

use crate::store::BoxError;

/// The file cannot be used. Fix what the variant names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxFileError {
    /// There is no such file, or it may not be written, or it is no database of SQLite.
    #[error("{} cannot be opened", .path.display())]
    NotOpened {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: BoxError,
    },
    /// Call `Transactions::prepare` in the program that writes the messages.
    #[error("{} has not the tables of onlyonce", .path.display())]
    NoTables {
        /// The file.
        path: PathBuf,
    },
    /// Use the same version everywhere.
    #[error("the tables of {} were made by another version of onlyonce", .path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
    },
}

/// The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct OutboxFile {
    jobs: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

impl OutboxFile {
    pub(super) async fn open(path: &Path) -> Result<Self, OutboxFileError> {
        let (opened, open) = oneshot::channel();
        let (jobs, queue) = mpsc::channel(JOBS_MAX);
        let asked = path.to_owned();
        let work = move || match connect(&asked) {
            Ok(connection) => {
                // Nobody waits any more if this fails, and no job will come.
                drop(opened.send(Ok(())));
                run(connection, queue);
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        let thread = thread::Builder::new().name("onlyonce-outbox".to_owned()).spawn(work);
        thread.map_err(|error| not_opened(path, error))?;
        open.await.unwrap_or_else(|gone| Err(not_opened(path, gone)))?;
        Ok(Self { jobs })
    }

    /// Runs `call` on the thread. It is done also if the caller leaves.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, BoxError> {
        let (answer, answered) = oneshot::channel();
        let job = move |connection: &mut Connection| {
            // The caller may have left.
            drop(answer.send(call(connection)));
        };
        self.jobs.send(Box::new(job)).await.map_err(|_| THREAD_ENDED)?;
        Ok(answered.await.map_err(|_| THREAD_ENDED)??)
    }
}

fn run(mut connection: Connection, mut queue: mpsc::Receiver<Job>) {
    while let Some(job) = queue.blocking_recv() {
        job(&mut connection);
    }
}

fn connect(path: &Path) -> Result<Connection, OutboxFileError> {
    // Without CREATE: a file that is not there has no messages, and is a wrong path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let prepare = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_WAIT_MAX)?;
        // As durable as the caller's own commits: a delivery that is forgotten is made again.
        connection.execute_batch("PRAGMA synchronous = EXTRA")?;
        let has_tables = "SELECT 1 FROM main.sqlite_master WHERE name = 'onlyonce_schema'";
        let has_tables = connection.prepare(has_tables)?.exists([])?;
        let version = match has_tables {
            true => {
                let read = "SELECT version FROM main.onlyonce_schema";
                connection.query_row(read, [], |row| row.get::<_, i64>(0)).optional()?
            }
            false => None,
        };
        Ok((connection, has_tables, version))
    };
    let prepared = prepare().map_err(|error: rusqlite::Error| not_opened(path, error))?;
    match prepared {
        (connection, _, Some(VERSION)) => Ok(connection),
        (_, true, _) => Err(OutboxFileError::OtherVersion { path: path.to_owned() }),
        (_, false, _) => Err(OutboxFileError::NoTables { path: path.to_owned() }),
    }
}

fn not_opened(path: &Path, error: impl Into<BoxError>) -> OutboxFileError {
    OutboxFileError::NotOpened { path: path.to_owned(), error: error.into() }
}

/// The version of the tables that `Transactions::prepare` makes.
const VERSION: i64 = 1;
/// Calls that wait for the thread. A caller has one at a time; one more may have been left.
const JOBS_MAX: usize = 2;
/// How long a call waits for another writer.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
const THREAD_ENDED: &str = "the thread of the outbox's file has ended";
