//! The service behind the proxies: a small hyper server on a thread of its own.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use http::{Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// A service that answers every request with the same 300 bytes, and counts them.
#[derive(Debug)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    executed: Arc<AtomicU64>,
}

impl Upstream {
    /// Listens on a free port, for as long as the process lives.
    ///
    /// # Errors
    /// What the system says.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let executed = Arc::new(AtomicU64::new(0));
        let counted = executed.clone();
        thread::spawn(move || runtime.block_on(serve(listener, counted)));
        Ok(Self { address, executed })
    }

    /// How many requests it has answered.
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, executed: Arc<AtomicU64>) -> io::Result<Infallible> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream, executed.clone()));
    }
}

async fn connection(stream: TcpStream, executed: Arc<AtomicU64>) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let executed = executed.clone();
        async move {
            request.into_body().collect().await?;
            executed.fetch_add(1, Ordering::Relaxed);
            Ok::<_, hyper::Error>(answer())
        }
    });
    // A proxy that ends takes its connections with it.
    let _ = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(Bytes::from_static(&ANSWER)));
    *response.status_mut() = StatusCode::CREATED;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The answer to every request.
pub const ANSWER_BYTES: usize = 300;
static ANSWER: [u8; ANSWER_BYTES] = [b'y'; ANSWER_BYTES];
