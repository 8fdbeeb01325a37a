//! A thread with an async runtime of its own: whatever runs there goes on while a caller's runtime is busy or gone.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinError;

use crate::store::{Fault, StoreError};

/// Starts a thread of this name, which ends with the future that `work` makes.
pub(crate) fn spawn<F: Future<Output = ()>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> io::Result<(Handle, JoinHandle<()>)> {
    let (ready, handle) = std::sync::mpsc::channel();
    // The runtime is made and dropped on its thread: an async caller must not drop one.
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            drop(ready.send(Ok(runtime.handle().clone())));
            runtime.block_on(work());
        }
        Err(error) => drop(ready.send(Err(error))),
    };
    let thread = Builder::new().name(name.to_owned()).spawn(run)?;
    let runtime = handle.recv().unwrap_or_else(|died| Err(io::Error::other(died)))?;
    Ok((runtime, thread))
}

/// The handle of a thread that is told to stop, by [`stop`](Self::stop) or when the handle is dropped.
#[derive(Debug)]
pub(crate) struct RuntimeThread {
    runtime: Handle,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<()>,
}

impl RuntimeThread {
    /// Starts a thread of this name. `work` is given the flag that tells it to stop.
    pub(crate) fn start<F: Future<Output = ()>>(
        name: &str,
        work: impl FnOnce(watch::Receiver<bool>) -> F + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(());
        let work = move || async move {
            work(stopped).await;
            drop(end);
        };
        let (runtime, _) = spawn(name, work)?;
        Ok(Self { runtime, stop, ended })
    }

    /// The same handle without a thread: the caller drives the work, on its own runtime.
    #[cfg(feature = "simulation")]
    pub(crate) fn driven<F: Future<Output = ()>>(
        runtime: Handle,
        work: impl FnOnce(watch::Receiver<bool>) -> F,
    ) -> (Self, impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(());
        let work = work(stopped);
        let driven = async move {
            work.await;
            drop(end);
        };
        (Self { runtime, stop, ended }, driven)
    }

    /// Tells the thread to stop, and waits until its work has ended.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        let mut ended = self.ended.clone();
        // An error says that the thread dropped its end, which is what is waited for.
        while ended.changed().await.is_ok() {}
    }

    /// Runs `call` on the thread, also if its caller leaves, once there is a permit in `room` for it. If the thread
    /// ended with it, the answer is what `lost` makes of that.
    #[cfg_attr(
        not(any(feature = "dynamodb", feature = "postgres", feature = "redis")),
        expect(dead_code, reason = "only the stores that are elsewhere run calls on a thread")
    )]
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        room: &Arc<Semaphore>,
        lost: impl FnOnce(JoinError) -> Fault,
        call: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        if *self.stop.borrow() {
            return Err(Fault::NotDone(StoreError::Closed));
        }
        let permit = room.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Fault::NotDone(StoreError::Busy))?;
        let call = self.runtime.spawn(async move {
            let answer = call.await;
            drop(permit);
            answer
        });
        call.await.unwrap_or_else(|gone| Err(lost(gone)))
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}
