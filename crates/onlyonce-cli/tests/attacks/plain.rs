//! A plain proxy of the same parts, with no promise: what it suffers under an attack is the machine's doing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};

use crate::lab::on_thread;

type Idle = Arc<Mutex<Vec<SendRequest<Incoming>>>>;

/// Starts one, for as long as the process lives.
pub(crate) fn start(upstream: SocketAddr) -> SocketAddr {
    on_thread(move |listener| serve(listener, upstream))
}

async fn serve(listener: TcpListener, upstream: SocketAddr) {
    let idle = Idle::default();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(connection(stream, upstream, idle.clone()));
    }
}

async fn connection(stream: TcpStream, upstream: SocketAddr, idle: Idle) {
    stream.set_nodelay(true).unwrap();
    let service = service_fn(move |request| {
        let idle = idle.clone();
        async move {
            let answer = forward(request, upstream, &idle).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|_| bad_gateway()))
        }
    });
    // How a connection ends is its peer's affair.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn forward(
    mut request: Request<Incoming>,
    upstream: SocketAddr,
    idle: &Idle,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let kept = idle.lock().unwrap().pop().filter(SendRequest::is_ready);
    let mut sender = match kept {
        Some(sender) => sender,
        None => connect(upstream).await?,
    };
    request.headers_mut().insert(header::HOST, "plain".parse()?);
    *request.version_mut() = http::Version::HTTP_11;
    *request.uri_mut() = request.uri().path().parse()?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    idle.lock().unwrap().push(sender);
    Ok(Response::from_parts(head, Full::new(body)))
}

async fn connect(
    upstream: SocketAddr,
) -> Result<SendRequest<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn bad_gateway() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
