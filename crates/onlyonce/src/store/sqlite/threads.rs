//! Starts and joins the three threads of a store: writer, reader, checkpointer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use super::SqliteOptions;
use super::error::SqliteOpenError;
use super::file::checkpoint;
use super::file::open;
use super::file::ownership::OwnedFile;
use super::index::Index;
use super::layout::routes::Routes;
use super::reader;
use super::shared::{Shared, Status};
use super::time::Time;
use super::writer::Writer;
use super::writer::open_file::OpenFile;

/// The threads of a store. Dropping it closes the store and joins them.
pub(super) struct Threads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Opens the file on the writer thread, so that the async runtime of the caller does not wait for the disk.
    pub(super) async fn start(
        path: &Path,
        options: SqliteOptions,
    ) -> Result<(Self, Arc<Shared>), SqliteOpenError> {
        let (opened, open) = oneshot::channel();
        let (asked, failed) = (path.to_owned(), path.to_owned());
        let writer =
            spawn(&failed, "onlyonce-write", move || match open_writer(asked, &options) {
                Ok(writer) => {
                    let shared = writer.shared.clone();
                    shared.set_status(Status::Up);
                    if opened.send(Ok(shared)).is_ok() {
                        writer.run();
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            })?;
        let died = || SqliteOpenError::io(&failed, std::io::ErrorKind::Other.into());
        let shared = open.await.unwrap_or_else(|_| Err(died()))?;
        let threads = Self { shared: shared.clone(), handles: Mutex::new(vec![writer]) };
        let (reads, writes) = (shared.clone(), shared.clone());
        let reader = spawn(&failed, "onlyonce-read", move || reader::run(&reads))?;
        let checkpointer = spawn(&failed, "onlyonce-log", move || checkpoint::run(&writes))?;
        threads.handles().extend([reader, checkpointer]);
        Ok((threads, shared))
    }

    pub(super) fn join(&self) {
        let handles = std::mem::take(&mut *self.handles());
        for handle in handles {
            // A panic needs no report here: the thread has closed the store.
            drop(handle.join());
        }
    }

    fn handles(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.close();
        self.join();
    }
}

/// Takes the lock, opens or creates the file, and builds the writer.
fn open_writer(path: PathBuf, options: &SqliteOptions) -> Result<Writer, SqliteOpenError> {
    let mut owned = OwnedFile::take(&path)?;
    open::create_if_absent(&mut owned, options.accepts_forgetting)?;
    let time = Time::new(options.clock.clone());
    let mut opened = open::open(&mut owned, options.audit.is_some())?;
    open::mark_leftovers_unknown(&mut opened, owned.path(), &time)?;
    let shared = Shared::new(Index::new(Routes::default()), time, options);
    let (open, identity) = OpenFile::connect(&shared, &owned, opened)?;
    Ok(Writer::new(shared, owned, open, identity))
}

fn spawn(
    path: &Path,
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SqliteOpenError> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(run).map_err(|error| SqliteOpenError::io(path, error))
}
