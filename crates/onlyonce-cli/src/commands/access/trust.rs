//! Whom a command trusts as an admin listener that speaks TLS, and what it shows there.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use super::Failed;
use crate::config::CertificateFiles;
use crate::tls::client_config;

/// For an admin listener at an https:// address.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::commands) struct TrustFlags {
    /// Who must have signed the certificate of the admin listener, as PEM; else whom this machine trusts
    #[arg(long, value_name = "FILE", global = true)]
    admin_ca: Option<PathBuf>,
    /// The certificate to show to an admin listener that asks for one, as PEM
    #[arg(long, value_name = "FILE", global = true)]
    admin_cert: Option<PathBuf>,
    /// The private key of --admin-cert, as PEM
    #[arg(long, value_name = "FILE", global = true)]
    admin_key: Option<PathBuf>,
}

impl TrustFlags {
    /// Whether any of them was given.
    pub(in crate::commands) fn is_given(&self) -> bool {
        self.admin_ca.is_some() || self.admin_cert.is_some() || self.admin_key.is_some()
    }

    /// Trusts nobody: for addresses without TLS.
    pub(super) fn nobody() -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the protocols")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth()
    }

    pub(super) fn client(&self) -> Result<ClientConfig, Failed> {
        let own = match (self.admin_cert.clone(), self.admin_key.clone()) {
            (Some(cert), Some(key)) => Some(CertificateFiles { cert, key }),
            (None, None) => None,
            _ => return Err(Failed::usage(&"--admin-cert and --admin-key belong together")),
        };
        let config = client_config(self.admin_ca.as_deref(), own.as_ref());
        config.map_err(|error| Failed::usage(&error))
    }
}
