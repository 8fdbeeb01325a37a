//! Encrypted connections to the server, by rustls. `tokio-postgres-rustls` binds the password exchange to the TLS
//! channel (SCRAM-SHA-256-PLUS).

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::PostgresOpenError;
use crate::store::BoxError;

/// Makes encrypted connections: to any server, as `sslmode=require` means everywhere; or, if `is_verified`, to one with a
/// certificate for its name, from the file `root_cert` or from the machine's own roots.
pub(super) fn connector(
    is_verified: bool,
    root_cert: Option<&Path>,
) -> Result<MakeRustlsConnect, PostgresOpenError> {
    let provider = rustls::crypto::ring::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let config = ClientConfig::builder_with_provider(provider.into());
    let config = config.with_safe_default_protocol_versions().map_err(failed)?;
    let config = match is_verified {
        true => config.with_root_certificates(roots(root_cert)?),
        false => {
            config.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(algorithms)))
        }
    };
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, PostgresOpenError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        for certificate in CertificateDer::pem_file_iter(file).map_err(failed)? {
            roots.add(certificate.map_err(failed)?).map_err(failed)?;
        }
        return Ok(roots);
    }
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(failed("this machine trusts no certificate: give sslrootcert"));
    }
    Ok(roots)
}

fn failed(why: impl Into<BoxError>) -> PostgresOpenError {
    PostgresOpenError::Tls(why.into())
}

/// Encrypts the connection to any server. Signatures are still checked, so that nobody else reads along.
#[derive(Debug)]
struct Unverified(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
