//! gRPC: a tonic service behind the layer, over a real socket.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use onlyonce::scope::Principal;
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Once, Policy};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};
use tonic_health::ServingStatus::{NotServing, Serving};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::HealthReporter;
use tonic_types::StatusExt;

async fn serve() -> (HealthClient<Channel>, HealthReporter, Once) {
    let once = Once::new(MemoryStore::new());
    let (reporter, service) = tonic_health::server::health_reporter();
    let layer =
        once.layer(|_: &http::request::Parts| Principal::of("peer", b"test"), Policy::default());
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    tokio::spawn(Server::builder().layer(layer).add_service(service).serve_with_incoming(incoming));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let client = HealthClient::new(channel.connect().await.unwrap());
    (client, reporter, once)
}

async fn check(
    client: &mut HealthClient<Channel>,
    service: &str,
    key: Option<&'static str>,
) -> Result<Response<HealthCheckResponse>, Status> {
    let mut request = Request::new(HealthCheckRequest { service: service.to_owned() });
    if let Some(key) = key {
        request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
    }
    client.check(request).await
}

// R16, R77; REP-23
#[tokio::test]
async fn a_unary_call_is_replayed_with_its_status_in_the_trailers() {
    let (mut client, reporter, once) = serve().await;
    reporter.set_service_status("pay", Serving).await;
    let first = check(&mut client, "pay", Some("key-1")).await.unwrap();
    assert_eq!(first.get_ref().status(), ServingStatus::Serving);
    assert!(first.metadata().get("idempotent-replayed").is_none());
    reporter.set_service_status("pay", NotServing).await;
    let again = check(&mut client, "pay", Some("key-1")).await.unwrap();
    assert_eq!(again.get_ref(), first.get_ref());
    assert_eq!(again.metadata().get("idempotent-replayed").unwrap(), "true");
    let unkeyed = check(&mut client, "pay", None).await.unwrap();
    assert_eq!(unkeyed.get_ref().status(), ServingStatus::NotServing);
    assert_eq!((once.counts().executed, once.counts().replayed), (1, 1));
}

#[tokio::test]
async fn a_refusal_of_the_service_is_replayed_too() {
    let (mut client, reporter, _) = serve().await;
    let first = check(&mut client, "unheard-of", Some("key-2")).await.unwrap_err();
    reporter.set_service_status("unheard-of", Serving).await;
    let again = check(&mut client, "unheard-of", Some("key-2")).await.unwrap_err();
    assert_eq!((again.code(), again.message()), (first.code(), first.message()));
}

#[tokio::test]
async fn a_refusal_of_ours_is_a_status_with_its_reason() {
    let (mut client, reporter, once) = serve().await;
    reporter.set_service_status("pay", Serving).await;
    check(&mut client, "pay", Some("key-3")).await.unwrap();
    let reused = check(&mut client, "other", Some("key-3")).await.unwrap_err();
    assert_eq!(reused.code(), Code::FailedPrecondition);
    let info = reused.get_details_error_info().unwrap();
    assert_eq!((&info.reason[..], &info.domain[..]), ("idempotency_key_reused", "onlyonce"));
    assert!(reused.message().starts_with("This key was already used"), "{}", reused.message());

    // The engine is gone: refused, and told when to come again.
    once.shutdown(std::time::Duration::from_secs(5)).await;
    let refused = check(&mut client, "pay", Some("key-4")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    let retry = refused.get_details_retry_info().unwrap();
    assert_eq!(retry.retry_delay, Some(std::time::Duration::from_secs(1)));
}
