//! TLS of a listener.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ParsedCertificate, ResolvesServerCert,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use super::TlsError;
use super::files::{Files, provider};
use crate::config::TlsRule;

/// Accepts connections by `rule`, for these protocols.
///
/// Early data is not accepted. A request in it could be told from others only by waiting for the end of the handshake,
/// and then it is there no sooner than without.
pub(super) fn acceptor(
    rule: &TlsRule,
    protocols: &[&[u8]],
    files: &mut Files,
) -> Result<TlsAcceptor, TlsError> {
    let certificates = rule.certificates.iter().map(|pair| files.certified(pair).map(Arc::new));
    let by_name = ByName(certificates.collect::<Result<_, _>>()?);
    let roots = rule.client_ca.as_ref().map(|file| files.roots(file)).transpose()?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Refused(error.into()))?;
    let builder = match roots {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            let verifier = verifier.build().map_err(|error| TlsError::Refused(error.into()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(by_name));
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    if rule.client_ca.is_some() {
        // A resumed session is not verified again: it would outlive the certificate of its client.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The first certificate that has the name which the client asks for, else the first.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let named = name
            .filter(|_| self.0.len() > 1)
            .and_then(|name| self.0.iter().find(|certificate| has_name(certificate, &name)));
        named.or_else(|| self.0.first()).cloned()
    }
}

fn has_name(certificate: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let end = certificate.end_entity_cert().ok();
    let end = end.and_then(|end| ParsedCertificate::try_from(end).ok());
    end.is_some_and(|end| rustls::client::verify_server_name(&end, name).is_ok())
}
