//! The service behind the proxies: it answers at once, or when its gate opens, and counts by path.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::lab::on_thread;

/// Answers when the gate is open.
pub(crate) const GATED: &str = "/gated";

/// Answers with a mebibyte.
pub(crate) const LARGE: &str = "/large";

/// Answers with 16 KiB.
pub(crate) const SMALL: &str = "/small";

#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ledger: Arc<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    executions: Mutex<HashMap<String, usize>>,
    gate: watch::Sender<bool>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let ledger = Arc::<Ledger>::default();
        let served = ledger.clone();
        let address = on_thread(move |listener| serve(listener, served));
        Self { address, ledger }
    }

    pub(crate) fn set_gate(&self, is_open: bool) {
        self.ledger.gate.send_replace(is_open);
    }

    /// How often `path` was executed.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.ledger.executions.lock().unwrap().get(path).copied().unwrap_or(0)
    }
}

async fn serve(listener: TcpListener, ledger: Arc<Ledger>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(connection(stream, ledger.clone()));
    }
}

async fn connection(stream: TcpStream, ledger: Arc<Ledger>) {
    stream.set_nodelay(true).unwrap();
    let service = service_fn(move |request| execute(ledger.clone(), request));
    // How a connection ends is its peer's affair.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn execute(
    ledger: Arc<Ledger>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    // A body that is cut off is not executed.
    if request.into_body().collect().await.is_ok() {
        *ledger.executions.lock().unwrap().entry(path.clone()).or_default() += 1;
    }
    if path == GATED {
        ledger.gate.subscribe().wait_for(|open| *open).await.unwrap();
    }
    let body = match path.as_str() {
        LARGE => Bytes::from(vec![b'x'; 1 << 20]),
        SMALL => Bytes::from(vec![b'x'; 16 << 10]),
        _ => "done".into(),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}
