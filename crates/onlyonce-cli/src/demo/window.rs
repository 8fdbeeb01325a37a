//! The listener of the shop window: its files, its state, the stream of what happens, and the buttons.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;

use super::stage::Stage;

type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) async fn serve(listener: TcpListener, stage: Arc<Stage>) {
    while let Ok((stream, _)) = listener.accept().await {
        let stage = stage.clone();
        let service = service_fn(move |request| {
            let stage = stage.clone();
            async move { Ok::<_, Infallible>(answer(&request, stage)) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn answer(request: &Request<Incoming>, stage: Arc<Stage>) -> Response<Body> {
    if !is_for_this_machine(request, &stage) {
        return told(StatusCode::FORBIDDEN, json!({ "error": "ask for it by its own address" }));
    }
    let path = request.uri().path();
    match (request.method(), path.strip_prefix("/play/")) {
        (&Method::POST, Some(scene)) => play(scene, request, stage),
        (&Method::GET, _) if path == "/events" => events(stage.news.listen()),
        (&Method::GET, _) if path == "/state" => match stage.state() {
            Ok(state) => told(StatusCode::OK, state),
            Err(error) => {
                told(StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": error.to_string() }))
            }
        },
        (&Method::GET, _) => file(path),
        _ => told(StatusCode::NOT_FOUND, json!({ "error": "there is no such button" })),
    }
}

/// A page of another site that has this address by a name of its own is not answered.
fn is_for_this_machine(request: &Request<Incoming>, stage: &Stage) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let local = format!("localhost:{}", stage.address.port());
    host.is_some_and(|host| host == stage.address.to_string() || host == local)
}

/// Another site's form cannot send this type of content.
fn play(scene: &str, request: &Request<Incoming>, stage: Arc<Stage>) -> Response<Body> {
    let media_type = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let (Ok(scene), Some(b"application/json")) = (scene.parse(), media_type) else {
        return told(StatusCode::BAD_REQUEST, json!({ "error": "there is no such scene" }));
    };
    tokio::spawn(async move {
        if let Err(error) = stage.play(scene).await {
            stage.news.tell(&json!({ "step": "trouble", "why": error.to_string() }));
        }
    });
    told(StatusCode::ACCEPTED, json!({}))
}

fn events(news: Receiver<Arc<str>>) -> Response<Body> {
    let stream = stream::unfold(news, |mut news| async {
        let text = match timeout(HEARTBEAT, news.recv()).await {
            Ok(Ok(event)) => format!("data: {event}\n\n"),
            // Too slow, or the end: the page connects again and loads the state.
            Ok(Err(_)) => return None,
            Err(_) => ":\n\n".to_owned(),
        };
        Some((Ok(Frame::data(Bytes::from(text))), news))
    });
    made(StatusCode::OK, "text/event-stream", StreamBody::new(stream).boxed_unsync())
}

fn file(path: &str) -> Response<Body> {
    let found = FILES.iter().find(|(name, ..)| *name == path);
    match found {
        Some((_, media_type, text)) => made(StatusCode::OK, media_type, whole(*text)),
        None => told(StatusCode::NOT_FOUND, json!({ "error": "there is no such file" })),
    }
}

fn told(status: StatusCode, body: Value) -> Response<Body> {
    made(status, "application/json", whole(body.to_string()))
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

fn made(status: StatusCode, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers
        .insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("page/stage.html")),
    ("/stage.css", "text/css; charset=utf-8", include_str!("page/stage.css")),
    ("/stage.js", "text/javascript; charset=utf-8", include_str!("page/stage.js")),
    ("/icon.svg", "image/svg+xml", include_str!("../admin/page/icon.svg")),
];
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HEARTBEAT: Duration = Duration::from_secs(15);
