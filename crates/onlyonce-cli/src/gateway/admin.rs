//! Health and metrics, on a listener of their own.

use std::io;
use std::net::TcpListener;

use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use onlyonce::Once;
use onlyonce::scope::Principal;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Stage;
use super::metrics;
use super::store::About;
use crate::config::Hidden;

/// What the listener tells, and to whom.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    pub(super) once: Once,
    pub(super) about: About,
    /// What `/metrics` asks for, where one is set.
    pub(super) token: Option<Hidden>,
    pub(super) stage: watch::Receiver<Stage>,
}

/// Serves until the other listeners have ended: whoever probes sees that the gateway drains, and that it lives.
pub(super) async fn serve(listener: TcpListener, desk: Desk) -> io::Result<()> {
    let mut stage = desk.stage.clone();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Ended) => return Ok(()),
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                tokio::spawn(connection(stream, desk.clone()));
            },
        }
    }
}

async fn connection(stream: TcpStream, desk: Desk) {
    let service = service_fn(move |request| {
        let desk = desk.clone();
        async move { Ok::<_, std::convert::Infallible>(desk.answer(&request).await) }
    });
    // How a connection ends is its peer's affair.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Desk {
    /// Health is told to everyone, because whoever probes it has no secrets.
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/health/live" => text(StatusCode::OK, "live\n"),
            "/health/ready" if self.is_draining() => {
                text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
            }
            "/health/ready" if self.once.is_ready().await => text(StatusCode::OK, "ready\n"),
            "/health/ready" => text(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n"),
            "/metrics" if !self.admits(request) => {
                text(StatusCode::UNAUTHORIZED, "send Authorization: Bearer and the admin token\n")
            }
            "/metrics" => {
                of_type(METRICS, text(StatusCode::OK, metrics::text(&self.once, &self.about)))
            }
            _ => text(StatusCode::NOT_FOUND, "there is /health/live, /health/ready and /metrics\n"),
        }
    }

    fn is_draining(&self) -> bool {
        *self.stage.borrow() >= Stage::Draining
    }

    /// Digests are compared, so that the time it takes tells nothing of the token.
    fn admits(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else { return true };
        let sent = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let sent = sent.and_then(|value| value.strip_prefix(b"Bearer "));
        sent.is_some_and(|sent| {
            Principal::of("token", sent) == Principal::of("token", token.reveal().as_bytes())
        })
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    of_type(HeaderValue::from_static("text/plain; charset=utf-8"), response)
}

fn of_type(media_type: HeaderValue, mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
