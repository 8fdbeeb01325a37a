//! How many requests an HTTP/2 service takes at once on a connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2::Connection;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// The streams of a connection: a permit for each further one that the service allows.
///
/// Without a permit hyper would queue the request for a stream, and a queued request looks the same as one
/// that was sent.
pub(super) struct Streams {
    permits: Arc<Semaphore>,
    /// How many permits there are, in use or not.
    count: Mutex<usize>,
    /// How many streams the service allows now; nothing once the connection has ended.
    allowed: Box<dyn Fn() -> Option<usize> + Send + Sync>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").field("permits", &self.permits).finish_non_exhaustive()
    }
}

impl Streams {
    /// Runs `connection` in a task of its own, and waits until the service has said how many streams it
    /// allows. It must say so first of all: RFC 9113 section 3.4. The connection must have begun with none.
    pub(super) async fn run<T>(connection: Driven<T>) -> Result<Self, BoxError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Arc::new(Mutex::new(Some(connection)));
        let permits = Arc::new(Semaphore::new(0));
        tokio::spawn(drive(connection.clone(), permits.clone()));
        let allowed = move || lock(&connection).as_ref().map(Driven::current_max_send_streams);
        while allowed().ok_or("the connection ended before the service said anything")? == 0 {
            sleep(SETTINGS_POLL).await;
        }
        Ok(Self { permits, count: Mutex::new(0), allowed: Box::new(allowed) })
    }

    /// Waits for a stream, which is free again when the permit is dropped; nothing once the connection has
    /// ended.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.adjust((self.allowed)()?.min(STREAMS_MAX));
        self.permits.clone().acquire_owned().await.ok()
    }

    fn adjust(&self, allowed: usize) {
        let mut count = lock(&self.count);
        if allowed > *count {
            self.permits.add_permits(allowed - *count);
            *count = allowed;
        } else {
            // Permits in use cannot be forgotten now: the next request tries again.
            *count -= self.permits.forget_permits(*count - allowed);
        }
    }
}

type Driven<T> = Connection<TokioIo<T>, Body, TokioExecutor>;

/// Requests on the connection get its error from hyper once it is dropped; those that wait for a stream get
/// it by the end of the permits.
async fn drive<T>(connection: Arc<Mutex<Option<Driven<T>>>>, permits: Arc<Semaphore>)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    poll_fn(|cx| {
        let mut slot = lock(&connection);
        let running = slot.as_mut().map(|connection| Pin::new(connection).poll(cx).is_pending());
        if running != Some(true) {
            *slot = None;
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    })
    .await;
    permits.close();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often it is looked whether the service has spoken, while a connection is made.
const SETTINGS_POLL: Duration = Duration::from_millis(1);
/// The most streams of a connection, whatever the service allows.
const STREAMS_MAX: usize = 10_000;
