//! Reads certificates and keys, as PEM.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use onlyonce::clock::{Clock, SystemClock};
use ring::digest;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage};

use super::TlsError;
use crate::config::CertificateFiles;

/// The files that were read, and what was noticed.
pub(super) struct Files {
    pub(super) warnings: Vec<String>,
    /// Over everything that was read.
    digest: digest::Context,
}

impl Default for Files {
    fn default() -> Self {
        Self { warnings: Vec::new(), digest: digest::Context::new(&digest::SHA256) }
    }
}

impl Files {
    /// A certificate with its chain and its key.
    pub(super) fn certified(&mut self, files: &CertificateFiles) -> Result<CertifiedKey, TlsError> {
        let chain = self.certificates(&files.cert)?;
        let end = EndEntityCert::try_from(&chain[0]);
        self.look_at_times(&end.map_err(|error| unusable(&files.cert, error))?, &files.cert);
        let key = self.key(&files.key)?;
        let key = provider().key_provider.load_private_key(key);
        let key = key.map_err(|error| unusable(&files.key, error))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => Ok(certified),
            Err(_) => Err(TlsError::OtherKey { key: files.key.clone(), cert: files.cert.clone() }),
        }
    }

    /// Whom to trust.
    pub(super) fn roots(&mut self, file: &Path) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(file)? {
            roots.add(certificate).map_err(|error| unusable(file, error))?;
        }
        Ok(roots)
    }

    /// A digest of all that was read so far: equal files make equal connections.
    pub(super) fn digest(&self) -> digest::Digest {
        self.digest.clone().finish()
    }

    fn certificates(&mut self, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let text = self.read(file)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        match found.map_err(|error| unusable(file, error))? {
            found if found.is_empty() => Err(TlsError::NoCertificate(file.to_owned())),
            found => Ok(found),
        }
    }

    fn key(&mut self, file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = self.read(file)?;
        if std::fs::metadata(file).is_ok_and(|about| about.permissions().mode() & OTHERS != 0) {
            let told = "every user of this machine may read this private key; chmod 600 it";
            self.warnings.push(format!("{}: {told}", file.display()));
        }
        PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::NoKey(file.to_owned()))
    }

    fn read(&mut self, file: &Path) -> Result<Vec<u8>, TlsError> {
        let unreadable = |source| TlsError::Unreadable { file: file.to_owned(), source };
        let mut text = Vec::new();
        let opened = File::open(file).map_err(unreadable)?;
        let bytes = opened.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
        if bytes as u64 > BYTES_MAX {
            return Err(TlsError::TooLong { file: file.to_owned(), bytes_max: BYTES_MAX });
        }
        self.digest.update(&(bytes as u64).to_be_bytes());
        self.digest.update(&text);
        Ok(text)
    }

    /// A client that looks at the times would refuse the certificate; the next one may be on its way.
    fn look_at_times(&mut self, certificate: &EndEntityCert<'_>, file: &Path) {
        let now = Duration::from_millis(SystemClock.wall().as_ms().unsigned_abs());
        let now = UnixTime::since_unix_epoch(now);
        // Whoever signed it, its times are looked at first.
        let algorithms = ALL_VERIFICATION_ALGS;
        let usage = KeyUsage::server_auth();
        let judged =
            certificate.verify_for_usage(algorithms, &[], &[], now, usage, None, None).err();
        let told = match judged {
            Some(webpki::Error::CertExpired { not_after, .. }) => {
                format!("this certificate expired on {}", day(not_after))
            }
            Some(webpki::Error::CertNotValidYet { not_before, .. }) => {
                format!("this certificate is not valid before {}", day(not_before))
            }
            _ => return,
        };
        self.warnings.push(format!("{}: {told}", file.display()));
    }
}

fn day(time: UnixTime) -> String {
    let day = i64::try_from(time.as_secs()).ok().and_then(|s| Timestamp::from_second(s).ok());
    day.map_or_else(|| "an unknown day".to_owned(), |day| day.to_string())
}

fn unusable(file: &Path, why: impl std::error::Error + Send + Sync + 'static) -> TlsError {
    TlsError::Unusable { file: file.to_owned(), why: why.into() }
}

/// The cryptography of every connection.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// Of the largest file: several hundred certificates.
const BYTES_MAX: u64 = 1 << 20;
/// The permission of everybody to read a file.
const OTHERS: u32 = 0o004;
