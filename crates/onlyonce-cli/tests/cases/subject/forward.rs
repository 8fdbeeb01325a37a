//! The handler of the library's server: it asks the upstream, and panics where that breaks off.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce::http::NotSent;
use onlyonce::scope::Principal;
use tokio::net::TcpStream;

/// Who asks: the credential, else the API key, else nobody.
pub(super) fn caller(head: &Parts) -> Principal {
    let credential = |name| head.headers.get(name).map(HeaderValue::as_bytes);
    match (credential("authorization"), credential("x-api-key")) {
        (Some(credential), _) => Principal::of("authorization", credential),
        (None, Some(key)) => Principal::of("api-key", key),
        (None, None) => Principal::anonymous(),
    }
}

pub(super) async fn forward(upstream: SocketAddr, mut request: Request) -> Response {
    let Ok(stream) = TcpStream::connect(upstream).await else {
        return not_sent();
    };
    let is_grpc =
        request.headers().get("content-type").is_some_and(|media| media == "application/grpc");
    remove_hop_by_hop(request.headers_mut());
    let mut response = match is_grpc {
        true => over_http2(stream, upstream, request).await,
        false => over_http1(stream, request).await,
    };
    remove_hop_by_hop(response.headers_mut());
    response
}

/// Nothing was sent, and the response proves it.
fn not_sent() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
    response.extensions_mut().insert(NotSent);
    response
}

async fn over_http1(stream: TcpStream, request: Request) -> Response {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request).await;
    response.expect("the upstream answers").map(Body::new)
}

async fn over_http2(stream: TcpStream, upstream: SocketAddr, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    *request.uri_mut() = Uri::builder()
        .scheme("http")
        .authority(upstream.to_string())
        .path_and_query(path)
        .build()
        .unwrap();
    *request.version_mut() = http::Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request).await;
    response.expect("the upstream answers").map(Body::new)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in ["connection", "keep-alive", "transfer-encoding", "upgrade", "expect"] {
        headers.remove(name);
    }
}
