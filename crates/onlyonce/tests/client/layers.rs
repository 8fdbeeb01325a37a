//! The same loop below reqwest's middleware and below tower.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use onlyonce::client::{
    Client, NoAnswer, OnceMiddleware, OperationLayer, Retries, SendOutcome, Told,
};
use onlyonce::key::Key;
use tower::{Layer, ServiceExt, service_fn};

use crate::environment::TestTime;
use crate::server::{Act, Server, answer, with};

fn reqwest_client() -> reqwest::Client {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    client.retry(reqwest::retry::never()).no_proxy().build().unwrap()
}

fn middleware(retries: Retries) -> reqwest_middleware::ClientWithMiddleware {
    reqwest_middleware::ClientBuilder::new(reqwest_client())
        .with(OnceMiddleware::new(retries))
        .build()
}

// R149, R152, R153
#[tokio::test]
async fn reqwests_middleware_retries_with_one_key_and_the_same_bytes() {
    let time = TestTime::default();
    let script = [Act::ResetBefore, Act::Truncate, with(201, "idempotent-replayed", "true")];
    let server = Server::start(&time, script).await;
    let http = middleware(time.retries());
    let response = http.post(server.url()).body("amount=1").send().await.unwrap();
    assert_eq!(response.status(), 201);
    let told = response.extensions().get::<Told>().unwrap();
    assert_eq!(told.outcome, "replayed");
    let received = server.received();
    assert_eq!(received.len(), 3);
    // Whoever sends it again later needs the key that the layer made.
    assert_eq!(received[0].header("idempotency-key"), Some(told.key.as_str()));
    for request in &received {
        assert_eq!(request.body, b"amount=1");
        assert!(request.header("idempotency-key").is_some());
        assert_eq!(request.header("idempotency-key"), received[0].header("idempotency-key"));
    }
}

// R149, R154
#[tokio::test]
async fn the_middleware_keeps_the_callers_key_and_passes_refusals_on() {
    let time = TestTime::default();
    let script = [answer(422), answer(422), answer(200)];
    let server = Server::start(&time, script).await;
    let http = middleware(time.retries());
    let keyed = http.post(server.url()).header("idempotency-key", "order-1");
    assert_eq!(keyed.send().await.unwrap().status(), 422);
    let key = Key::derive(["order", "2"]);
    let keyed = http.post(server.url()).with_extension(key.clone());
    assert_eq!(keyed.send().await.unwrap().status(), 422);
    http.get(server.url()).send().await.unwrap();
    let keys: Vec<_> = server
        .received()
        .iter()
        .map(|one| one.header("idempotency-key").map(str::to_owned))
        .collect();
    assert_eq!(keys, [Some("order-1".to_owned()), Some(key.as_str().to_owned()), None]);
}

// R149
#[tokio::test]
async fn two_different_keys_are_refused_by_the_layers() {
    let time = TestTime::default();
    let server = Server::start(&time, []).await;
    let http = middleware(time.retries());
    let keyed = http.post(server.url()).header("idempotency-key", "order-1");
    let error = keyed.with_extension(Key::derive(["order", "2"])).send().await.unwrap_err();
    assert!(error.to_string().contains("different keys"), "{error}");

    let layer = OperationLayer::new(time.retries(), Full::<Bytes>::new);
    let seen = Seen::default();
    let mut request = Request::post("http://bank.test/charges")
        .header("idempotency-key", "order-1")
        .body(Full::new(Bytes::new()))
        .unwrap();
    request.extensions_mut().insert(Key::derive(["order", "2"]));
    let error = layer.layer(flaky(seen.clone())).oneshot(request).await.unwrap_err();
    assert!(error.to_string().contains("different keys"), "{error}");
    assert!(seen.lock().unwrap().is_empty() && server.received().is_empty());
}

// R159, R161
#[tokio::test]
async fn the_middleware_says_when_it_never_got_through() {
    let time = TestTime::default();
    let http = middleware(time.retries());
    let error = http.post("http://127.0.0.1:1/").send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else { panic!("{error}") };
    let NoAnswer(end) = error.downcast_ref().unwrap();
    assert!((**end).as_ref().unwrap_err().advice().contains("same key"));
}

#[tokio::test]
async fn the_client_works_over_a_reqwest_client_of_the_callers() {
    let time = TestTime::default();
    let server = Server::start(&time, [Act::ResetAfter, answer(201)]).await;
    let once = Client::over(reqwest_client()).with_retries(time.retries());
    let end = once.post(&server.url()).json(&1).send().await.unwrap();
    assert!(matches!(end, SendOutcome::Fresh(_)));
    assert_eq!(server.received().len(), 2);
}

type Seen = Arc<Mutex<Vec<(Option<String>, Bytes)>>>;

/// Fails once, then answers with trailers.
fn flaky(
    seen: Seen,
) -> impl tower::Service<
    Request<Full<Bytes>>,
    Response = Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>,
    Error = std::io::Error,
    Future: Send,
> + Clone
+ Send
+ 'static {
    service_fn(move |request: Request<Full<Bytes>>| {
        let seen = seen.clone();
        async move {
            let key = request.headers().get("idempotency-key");
            let key = key.map(|key| key.to_str().unwrap().to_owned());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut seen = seen.lock().unwrap();
            seen.push((key, body));
            if seen.len() == 1 {
                return Err(std::io::Error::other("reset"));
            }
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
            let body = Full::new(Bytes::from("paid"));
            let body = body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed();
            let mut response = Response::new(body);
            let media_type = http::HeaderValue::from_static("application/grpc");
            response.headers_mut().insert("content-type", media_type);
            Ok(response)
        }
    })
}

// R149, R152, R153; threat J6
#[tokio::test]
async fn the_tower_layer_retries_with_one_key_and_keeps_trailers() {
    let (time, seen) = (TestTime::default(), Seen::default());
    let layer = OperationLayer::new(time.retries(), Full::<Bytes>::new);
    let service = layer.layer(flaky(seen.clone()));
    let request =
        Request::post("http://bank.test/charges").body(Full::new(Bytes::from("amount=1")));
    let response = service.oneshot(request.unwrap()).await.unwrap();
    let told = response.extensions().get::<Told>().unwrap().clone();
    assert_eq!(told.outcome, "fresh");
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.to_bytes(), "paid");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].0.as_deref(), Some(told.key.as_str()));
}

// R153, R155: tonic's own client and server, with a status that asks to come again.
#[tokio::test]
async fn a_tonic_client_retries_unavailable_with_one_key() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = keys.clone();
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let refuse_once = move |request: tonic::Request<()>| {
        let key =
            request.metadata().get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
        let mut seen = seen.lock().unwrap();
        seen.push(key);
        match seen.len() {
            1 => Err(tonic::Status::unavailable("come again")),
            _ => Ok(request),
        }
    };
    let routes = tonic::service::interceptor::InterceptedService::new(health, refuse_once);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(
        tonic::transport::Server::builder().add_service(routes).serve_with_incoming(incoming),
    );

    let channel = tonic::transport::Channel::from_shared(url).unwrap().connect_lazy();
    let retries = Retries::new().with_backoff(Duration::from_millis(1), Duration::from_millis(1));
    let body = |bytes| tonic::body::Body::new(Full::<Bytes>::new(bytes));
    let service = OperationLayer::new(retries, body).layer(channel);
    let mut client = tonic_health::pb::health_client::HealthClient::new(service);
    let check = tonic_health::pb::HealthCheckRequest { service: String::new() };
    let answered = client.check(check).await.unwrap().into_inner();
    assert_eq!(answered.status, 1);
    let keys = keys.lock().unwrap();
    assert_eq!(keys.len(), 2);
    assert!(keys[0].is_some() && keys[0] == keys[1]);
}
