//! A client of TLS, by rustls.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Request;
use proof::client::{Answer, Connection, SendError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{BODY, within};

#[derive(Clone)]
pub(super) struct Client(Arc<ClientConfig>);

impl Client {
    /// Trusts whom `ca` has, and shows `OWN.pem` by `OWN.key`.
    pub(super) fn new(ca: &Path, own: Option<PathBuf>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(ca));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_file(own.with_extension("key")).unwrap();
                let chain = certificates(&own.with_extension("pem"));
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.enable_early_data = true;
        Self(Arc::new(config))
    }

    /// Whether the next connection could send early data, by what the server has told.
    pub(super) fn may_send_early_data(&self) -> bool {
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(self.0.clone(), name).unwrap().early_data().is_some()
    }

    pub(super) async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let connecting = async {
            TlsConnector::from(self.0.clone())
                .connect(name, TcpStream::connect(address).await?)
                .await
        };
        within("a handshake", connecting).await
    }

    pub(super) async fn open(&self, address: SocketAddr) -> Result<Connection, SendError> {
        Connection::over(self.connect(address).await?, address).await
    }

    /// `POST path` with this key, on a connection of its own.
    pub(super) async fn post(
        &self,
        address: SocketAddr,
        path: &str,
        key: &str,
    ) -> Result<Answer, SendError> {
        self.open(address).await?.post(path, key, BODY).await
    }

    pub(super) async fn get(&self, address: SocketAddr, request: http::request::Builder) -> Answer {
        self.open(address).await.unwrap().send(request, "").await.unwrap()
    }
}

/// What a server shows.
pub(super) fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

pub(super) fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(file).unwrap().map(Result::unwrap).collect()
}

/// The look-up of the operation that `POST path` with this key is about.
pub(super) fn look_up(path: &str, key: &str) -> http::request::Builder {
    let target = format!("/.well-known/idempotency/operation?method=POST&path={path}");
    Request::get(target).header("idempotency-key", key)
}
