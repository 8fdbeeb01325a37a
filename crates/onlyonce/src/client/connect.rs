//! A connector that gives up early enough to prove that nothing was sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use tower_service::Service;

use crate::store::BoxError;

/// The timeout of an attempt, among the extensions of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptTime(pub(crate) Duration);

tokio::task_local! {
    /// How long the attempt of this task may take to connect.
    static WAIT: Duration;
}

/// Sends within an attempt: at most half of its time is spent on connecting, so that a connection that was not
/// made is told from a request that may have been sent.
pub(crate) async fn within<F: Future>(attempt: Option<&AttemptTime>, sending: F) -> F::Output {
    let wait = attempt.map_or(CONNECT_WAIT, |attempt| (attempt.0 / 2).min(CONNECT_WAIT));
    WAIT.scope(wait, sending).await
}

/// Bounds the whole of connecting: name resolution, TCP and TLS.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<C>(pub(crate) C);

impl<C> Service<Uri> for Bounded<C>
where
    C: Service<Uri, Error = BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let wait = WAIT.try_with(|wait| *wait).unwrap_or(CONNECT_WAIT);
        let connecting = self.0.call(uri);
        Box::pin(async move {
            let connected = tokio::time::timeout(wait, connecting).await;
            connected.unwrap_or_else(|_| Err("no connection within its time".into()))
        })
    }
}

/// The most that is spent on connecting, however long an attempt may take.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(5);
