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
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::metrics;

/// Serves until `stopped`.
pub(super) async fn serve(
    listener: TcpListener,
    once: Once,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                tokio::spawn(connection(stream, once.clone()));
            },
        }
    }
}

async fn connection(stream: TcpStream, once: Once) {
    let service = service_fn(move |request| {
        let once = once.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(&once, request).await) }
    });
    // How a connection ends is its peer's affair.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(once: &Once, request: Request<Incoming>) -> Response<Full<Bytes>> {
    match request.uri().path() {
        "/health/live" => text(StatusCode::OK, "live\n".to_owned()),
        "/health/ready" => match once.is_ready().await {
            true => text(StatusCode::OK, "ready\n".to_owned()),
            false => {
                text(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n".to_owned())
            }
        },
        "/metrics" => of_type(METRICS, text(StatusCode::OK, metrics::text(once))),
        _ => text(
            StatusCode::NOT_FOUND,
            "there is /health/live, /health/ready and /metrics\n".to_owned(),
        ),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    of_type(HeaderValue::from_static("text/plain; charset=utf-8"), response)
}

fn of_type(media_type: HeaderValue, mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
