//! Services with roots of their own, which want to see the gateway's certificate.

use proof::client;

use super::service::Service;
use super::{Authority, Lab, PLAIN};
use crate::BODY;

const TRUSTED: &str =
    "[upstream_tls]\nca = \"services.pem\"\ncert = \"gateway.pem\"\nkey = \"gateway.key\"\n";

/// The gateway's own listener has TLS or not; its upstream has.
async fn lab(tables: &str, protocols: &[&[u8]]) -> (Lab, Service) {
    let t = Lab::start(tables).await;
    let services = Authority::new(t.folder.path(), "services");
    let gateways = Authority::new(t.folder.path(), "gateways");
    services.server("service", "localhost");
    gateways.client("gateway", "/CN=gateway");
    let service = Service::start(t.folder.path(), protocols).await;
    (t, service)
}

fn routed(service: &Service, tables: &str) -> String {
    let port = service.address.port();
    format!("[policy]\nupstream = \"https://localhost:{port}\"\n{tables}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_with_its_own_roots_sees_the_certificate_of_the_gateway() {
    for protocols in [&[&b"http/1.1"[..]][..], &[b"h2"]] {
        let (t, service) = lab("", protocols).await;
        t.configure(&routed(&service, TRUSTED));
        assert!(t.reload().await.contains("is in force"), "{}", t.gateway.errors());
        let answer = client::post(t.gateway.address, "/a", "operation-1", BODY).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(service.seen().len(), 1);
    }
}

// R86; threat F2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_not_trusted_gets_nothing() {
    let (t, service) = lab("", &[b"http/1.1"]).await;
    for untrusted in [
        "",
        "[upstream_tls]\nca = \"gateways.pem\"\ncert = \"gateway.pem\"\nkey = \"gateway.key\"\n",
    ] {
        t.configure(&routed(&service, untrusted));
        assert!(t.reload().await.contains("is in force"), "{}", t.gateway.errors());
        let refused = client::post(t.gateway.address, "/a", "operation-1", BODY).await.unwrap();
        assert_eq!(
            (refused.status.as_u16(), refused.problem().as_deref()),
            (503, Some("upstream_unreachable")),
            "{untrusted}"
        );
    }
    assert!(service.seen().is_empty());
    // The key is free, and the next configuration makes other connections.
    t.configure(&routed(&service, TRUSTED));
    assert!(t.reload().await.contains("is in force"));
    let answer = client::post(t.gateway.address, "/a", "operation-1", BODY).await.unwrap();
    assert_eq!((answer.status.as_u16(), service.seen().len()), (201, 1));
}

// R86; threat F2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_misses_the_certificate_of_the_gateway_executes_nothing() {
    for protocols in [&[&b"http/1.1"[..]][..], &[b"h2"]] {
        let (t, service) = lab("", protocols).await;
        t.configure(&routed(&service, "[upstream_tls]\nca = \"services.pem\"\n"));
        assert!(t.reload().await.contains("is in force"));
        let refused = client::post(t.gateway.address, "/a", "operation-1", BODY).await.unwrap();
        // Over HTTP/1.1 the request may be on its way when the service refuses the handshake.
        let is_refused = matches!(refused.problem().as_deref(), Some("upstream_unreachable"));
        let is_unknown = refused.problem().as_deref() == Some("idempotency_outcome_unknown");
        assert!(is_refused || (is_unknown && protocols[0] == b"http/1.1"), "{refused:?}");
        assert!(service.seen().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_is_told_that_the_client_came_by_tls() {
    let (t, service) = lab(PLAIN, &[b"http/1.1"]).await;
    t.configure(&routed(&service, &format!("{TRUSTED}{PLAIN}")));
    assert!(t.reload().await.contains("is in force"), "{}", t.gateway.errors());
    let answer = t.client(None).post(t.gateway.address, "/a", "operation-1").await.unwrap();
    assert_eq!(answer.status, 201);
    let seen = service.seen().remove(0);
    assert_eq!(seen["x-forwarded-proto"], "https");
    assert!(seen["forwarded"].to_str().unwrap().ends_with(";proto=https"), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_of_the_gateway_is_shown_after_a_reload() {
    let (t, service) = lab("", &[b"h2"]).await;
    t.configure(&routed(&service, TRUSTED));
    assert!(t.reload().await.contains("is in force"));
    let post = |key: &'static str| client::post(t.gateway.address, "/a", key, BODY);
    assert_eq!(post("operation-1").await.unwrap().status, 201);
    // One that the service does not take: only a new connection shows it.
    t.authority.client("gateway", "/CN=gateway");
    assert_eq!(post("operation-2").await.unwrap().status, 201, "nobody has said so yet");
    assert!(t.reload().await.contains("is in force"));
    assert_eq!(
        post("operation-3").await.unwrap().problem().as_deref(),
        Some("upstream_unreachable")
    );
    assert_eq!(service.seen().len(), 2);
}
