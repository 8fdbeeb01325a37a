//! Handshakes that are under way, bounded in number and in time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

/// The handshakes of one thread, the oldest first.
#[derive(Debug)]
pub(crate) struct Handshakes {
    under_way: VecDeque<AbortHandle>,
    max: usize,
}

impl Handshakes {
    /// At most `max` at once.
    pub(crate) fn new(max: usize) -> Self {
        Self { under_way: VecDeque::new(), max }
    }

    /// Runs one more. Over the bound the oldest is given up: clients that mean it have ended theirs long ago, so that
    /// those which do not cannot keep others out.
    pub(crate) fn begin(&mut self, handshake: impl Future<Output = ()> + Send + 'static) {
        if self.under_way.len() >= self.max {
            self.under_way.retain(|handshake| !handshake.is_finished());
        }
        if self.under_way.len() >= self.max
            && let Some(oldest) = self.under_way.pop_front()
        {
            oldest.abort();
        }
        self.under_way.push_back(tokio::spawn(handshake).abort_handle());
    }

    /// Gives all of them up.
    pub(crate) fn end(&mut self) {
        self.under_way.drain(..).for_each(|handshake| handshake.abort());
    }
}

/// The stream after its handshake, if that succeeds in time.
pub(crate) async fn shaken(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> Option<TlsStream<TcpStream>> {
    let handshake = acceptor.accept_with(stream, |connection| {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
    });
    match timeout(HANDSHAKE_WAIT, handshake).await {
        Ok(Ok(stream)) => Some(stream),
        // How a handshake fails is its client's affair, and helps whoever sets clients up.
        Ok(Err(error)) => {
            debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => {
            debug!("a TLS handshake took too long");
            None
        }
    }
}

/// From the first byte of a client to the last of its handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// What one connection holds of an answer that its client does not read, encrypted.
const UNSENT_BYTES_MAX: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn over_the_bound_the_oldest_that_has_not_ended_is_given_up() {
        let mut handshakes = Handshakes::new(2);
        let begin = |handshakes: &mut Handshakes| {
            let (alive, gone) = oneshot::channel::<()>();
            handshakes.begin(async move {
                let _alive = alive;
                pending::<()>().await;
            });
            gone
        };
        handshakes.begin(async {});
        tokio::task::yield_now().await;
        let (mut first, mut second) = (begin(&mut handshakes), begin(&mut handshakes));
        tokio::task::yield_now().await;
        assert!(first.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
        let _third = begin(&mut handshakes);
        assert!(first.await.is_err(), "it is gone");
        assert_eq!(second.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        handshakes.end();
        assert!(second.await.is_err());
    }
}
