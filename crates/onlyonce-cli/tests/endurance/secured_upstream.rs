//! An upstream behind TLS whose handshakes are slow: nobody waits for the handshakes of all the others.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use proof::client;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use crate::BODY;
use crate::gateway::Gateway;
use crate::secured::{make_certificate, path};

#[tokio::test]
async fn requests_over_http1_make_their_connections_side_by_side() {
    let upstream = Upstream::start(&[b"http/1.1"]).await;
    let took = upstream.send_at_once().await;
    assert_eq!(upstream.executions(), vec![Version::HTTP_11; REQUESTS]);
    assert!(took < HANDSHAKE * 5, "{took:?}");
}

#[tokio::test]
async fn requests_over_http2_share_a_connection() {
    let upstream = Upstream::start(&[b"h2", b"http/1.1"]).await;
    let took = upstream.send_at_once().await;
    assert_eq!(upstream.executions(), vec![Version::HTTP_2; REQUESTS]);
    assert!(took < HANDSHAKE * 5, "{took:?}");
    let threads = std::thread::available_parallelism().unwrap().get();
    let connections = *upstream.served.connections.lock().unwrap();
    assert!(connections <= threads, "{connections} connections of {threads} threads");
}

struct Upstream {
    address: SocketAddr,
    served: Arc<Served>,
    folder: TempDir,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Served {
    connections: Mutex<usize>,
    executions: Mutex<Vec<Version>>,
}

impl Upstream {
    async fn start(protocols: &[&[u8]]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_certificate(folder.path());
        let acceptor = acceptor(folder.path(), protocols);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::<Served>::default();
        let mut server = JoinSet::new();
        server.spawn(accept(listener, acceptor, served.clone()));
        Self { address, served, folder, _server: server }
    }

    fn executions(&self) -> Vec<Version> {
        self.served.executions.lock().unwrap().clone()
    }

    /// How long it takes until all requests of a gateway that has no connection yet are answered.
    async fn send_at_once(&self) -> Duration {
        let gateway = self.gateway().await;
        let began = Instant::now();
        let keys: Vec<_> = (0..REQUESTS).map(|n| format!("key-{n}")).collect();
        let sending = keys.iter().map(|key| client::post(gateway.address, "/t", key, BODY));
        for answer in join_all(sending).await {
            assert_eq!(answer.unwrap().status, 201);
        }
        began.elapsed()
    }

    /// A gateway that trusts the certificate.
    async fn gateway(&self) -> Gateway {
        let config = format!(
            "upstream = \"https://localhost:{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
            self.address.port()
        );
        fs::write(self.folder.path().join("onlyonce.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command
            .args(["serve", "--config", "onlyonce.toml", "--listen", "127.0.0.1:0"])
            .current_dir(self.folder.path())
            .env("SSL_CERT_FILE", path(self.folder.path(), "cert.pem"))
            .env_remove("SSL_CERT_DIR")
            .stdin(Stdio::null());
        Gateway::running(self.folder.path(), &mut command).await
    }
}

fn acceptor(folder: &Path, protocols: &[&[u8]]) -> TlsAcceptor {
    let certificates = CertificateDer::pem_file_iter(path(folder, "cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(path(folder, "key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates.map(Result::unwrap).collect(), key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, served: Arc<Served>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        *served.connections.lock().unwrap() += 1;
        connections.spawn(serve(stream, acceptor.clone(), served.clone()));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, served: Arc<Served>) {
    sleep(HANDSHAKE).await;
    let stream = acceptor.accept(stream).await.unwrap();
    let service = service_fn(move |request| execute(request, served.clone()));
    let builder = auto::Builder::new(TokioExecutor::new());
    // The gateway may leave at any time.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn execute(
    request: Request<Incoming>,
    served: Arc<Served>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    served.executions.lock().unwrap().push(request.version());
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::from("done"));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

const REQUESTS: usize = 24;
/// One handshake. The first request of a thread waits for one, the others for that one and their own.
const HANDSHAKE: Duration = Duration::from_millis(500);
