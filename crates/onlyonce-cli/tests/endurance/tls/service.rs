//! A service behind TLS that wants to see the gateway's certificate.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::client::certificates;

pub(super) struct Service {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
    _server: JoinSet<()>,
}

impl Service {
    /// Shows `service.pem`, and asks for a certificate that `gateways.pem` has signed.
    pub(super) async fn start(folder: &Path, protocols: &[&[u8]]) -> Self {
        let acceptor = acceptor(folder, protocols);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<HeaderMap>>>::default();
        let mut server = JoinSet::new();
        server.spawn(accept(listener, acceptor, seen.clone()));
        Self { address, seen, _server: server }
    }

    /// The heads of the requests that were executed.
    pub(super) fn seen(&self) -> Vec<HeaderMap> {
        self.seen.lock().unwrap().clone()
    }
}

fn acceptor(folder: &Path, protocols: &[&[u8]]) -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&folder.join("gateways.pem")));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let key = PrivateKeyDer::from_pem_file(folder.join("service.key")).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.unwrap())
        .with_single_cert(certificates(&folder.join("service.pem")), key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Mutex<Vec<HeaderMap>>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(serve(stream, acceptor.clone(), seen.clone()));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, seen: Arc<Mutex<Vec<HeaderMap>>>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| execute(request, seen.clone()));
    let builder = auto::Builder::new(TokioExecutor::new());
    // The gateway may leave at any time.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn execute(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let _ = body.collect().await;
    seen.lock().unwrap().push(head.headers);
    let mut response = Response::new(Full::from("done"));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}
