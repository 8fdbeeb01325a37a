//! TLS to a service.

use std::sync::Arc;

use onlyonce::store::BoxError;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// Trusts what this machine trusts, and asks for HTTP/2 before HTTP/1.1.
pub(super) fn connector() -> Result<TlsConnector, BoxError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err("this machine has no trusted certificates; install its ca-certificates".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
