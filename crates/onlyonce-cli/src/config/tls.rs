//! `[tls]`, `[admin] tls` and `[upstream_tls]`: which files hold certificates and keys. What is in them is read later.

use std::path::PathBuf;

use super::error::{Remark, Remarks};
use super::field::Field;
use super::names::{TLS, UPSTREAM_TLS};

/// How a listener speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsRule {
    /// Its certificates. The first is for clients that name no host, or an unknown one.
    pub certificates: Vec<CertificateFiles>,
    /// Who must have signed the certificates of clients; `None`: they need none.
    pub client_ca: Option<PathBuf>,
}

/// A certificate, with the chain to its root, and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and those that signed it, as PEM.
    pub cert: PathBuf,
    /// The private key, as PEM.
    pub key: PathBuf,
}

/// How the gateway speaks TLS to services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTlsRule {
    /// Who must have signed the certificates of services; `None`: whom this machine trusts.
    pub ca: Option<PathBuf>,
    /// What the gateway shows to services that ask for a certificate.
    pub own: Option<CertificateFiles>,
}

impl TlsRule {
    pub(super) fn read(field: Field<'_>) -> Result<Self, Remarks> {
        let (mut certs, mut keys, mut client_ca) = (Vec::new(), Vec::new(), None);
        field.each(&TLS, |field| {
            match field.name.name {
                "cert" => certs = files(field)?,
                "key" => keys = files(field)?,
                _ => client_ca = file(field)?,
            }
            Ok(())
        })?;
        let wrong = |message: &str| Err(field.wrong(message).into());
        match (certs.len(), keys.len()) {
            (0, _) => wrong("it needs `cert`, the file of a certificate"),
            (_, 0) => wrong("it needs `key`, the file of the private key of `cert`"),
            (certs, keys) if certs != keys => wrong(
                "`cert` and `key` are lists of the same length, each key in the place of its certificate",
            ),
            (certs, _) if certs > CERTIFICATES_MAX => wrong("it has more than 100 certificates"),
            _ => {
                let pairs = certs.into_iter().zip(keys);
                let certificates = pairs.map(|(cert, key)| CertificateFiles { cert, key });
                Ok(Self { certificates: certificates.collect(), client_ca })
            }
        }
    }
}

impl UpstreamTlsRule {
    pub(super) fn read(field: Field<'_>) -> Result<Self, Remarks> {
        let (mut ca, mut cert, mut key) = (None, None, None);
        field.each(&UPSTREAM_TLS, |field| {
            match field.name.name {
                "ca" => ca = file(field)?,
                "cert" => cert = file(field)?,
                _ => key = file(field)?,
            }
            Ok(())
        })?;
        match (cert, key) {
            (Some(cert), Some(key)) => Ok(Self { ca, own: Some(CertificateFiles { cert, key }) }),
            (None, None) => Ok(Self { ca, own: None }),
            _ => Err(field.wrong("`cert` and `key` belong together; give both or neither").into()),
        }
    }
}

/// One file, or several.
fn files(field: Field<'_>) -> Result<Vec<PathBuf>, Remarks> {
    match field.is_list() {
        true => field.all(|member| file(member)?.ok_or_else(|| member.refused())),
        false => Ok(file(field)?.into_iter().collect()),
    }
}

/// A file; `None` where the text is empty.
fn file(field: Field<'_>) -> Result<Option<PathBuf>, Remark> {
    Ok(Some(field.text()?).filter(|text| !text.is_empty()).map(PathBuf::from))
}

/// Each handshake may look at every one of them.
const CERTIFICATES_MAX: usize = 100;
