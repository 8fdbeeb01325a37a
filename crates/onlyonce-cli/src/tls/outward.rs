//! TLS to a service, and to an admin listener.

use std::path::Path;
use std::sync::Arc;

use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::TlsError;
use super::files::{Files, provider};
use crate::config::{CertificateFiles, UpstreamTlsRule};

/// How the gateway connects to services.
#[derive(Clone)]
pub(crate) struct Outward {
    /// By `[upstream_tls]`.
    own: Option<TlsConnector>,
    /// Of the files that it was made from.
    digest: Vec<u8>,
}

impl Outward {
    /// By `[upstream_tls]`; without it, as this machine does.
    pub(super) fn by(rule: Option<&UpstreamTlsRule>, files: &mut Files) -> Result<Self, TlsError> {
        let Some(rule) = rule else { return Ok(Self::of_this_machine()) };
        let mut own = Files::default();
        let config = client_config_of(rule.ca.as_deref(), rule.own.as_ref(), &mut own);
        files.warnings.append(&mut own.warnings);
        let digest = own.digest().as_ref().to_vec();
        Ok(Self { own: Some(connector(config?)), digest })
    }

    /// Trusts what this machine trusts, and shows no certificate.
    pub(crate) fn of_this_machine() -> Self {
        Self { own: None, digest: Vec::new() }
    }

    /// Asks for HTTP/2 before HTTP/1.1.
    pub(crate) fn connector(&self) -> Result<TlsConnector, TlsError> {
        match &self.own {
            Some(connector) => Ok(connector.clone()),
            None => client_config(None, None).map(connector),
        }
    }
}

/// Whether connections of one are as good as those of the other.
impl PartialEq for Outward {
    fn eq(&self, other: &Self) -> bool {
        (self.own.is_some(), &self.digest) == (other.own.is_some(), &other.digest)
    }
}

fn connector(mut config: ClientConfig) -> TlsConnector {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// A client that trusts whom the file `ca` has, else whom this machine trusts, and shows `own`.
pub(crate) fn client_config(
    ca: Option<&Path>,
    own: Option<&CertificateFiles>,
) -> Result<ClientConfig, TlsError> {
    client_config_of(ca, own, &mut Files::default())
}

fn client_config_of(
    ca: Option<&Path>,
    own: Option<&CertificateFiles>,
    files: &mut Files,
) -> Result<ClientConfig, TlsError> {
    let roots = match ca {
        Some(ca) => files.roots(ca)?,
        None => roots_of_this_machine()?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Refused(error.into()))?
        .with_root_certificates(roots);
    match own {
        None => Ok(builder.with_no_client_auth()),
        Some(own) => {
            let shown = SingleCertAndKey::from(files.certified(own)?);
            Ok(builder.with_client_cert_resolver(Arc::new(shown)))
        }
    }
}

fn roots_of_this_machine() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 { Err(TlsError::NoRoots) } else { Ok(roots) }
}
