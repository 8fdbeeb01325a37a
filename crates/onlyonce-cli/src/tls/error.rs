//! Why TLS is impossible with a file.

use std::io;
use std::path::PathBuf;

use onlyonce::store::BoxError;

/// Why TLS is impossible. Each names the file that must be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// Check the path and the permissions.
    #[error("{}: the file cannot be read: {source}", .file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Check that it is the right file.
    #[error("{}: the file has more than {bytes_max} bytes", .file.display())]
    TooLong {
        /// Which file.
        file: PathBuf,
        /// What is allowed.
        bytes_max: u64,
    },
    /// Give the file as PEM.
    #[error("{}: there is no certificate in it, as PEM (-----BEGIN CERTIFICATE-----)", .0.display())]
    NoCertificate(PathBuf),
    /// Give the file as PEM, without a password.
    #[error(
        "{}: there is no private key in it, as PEM (-----BEGIN PRIVATE KEY-----) and without a password", .0.display()
    )]
    NoKey(PathBuf),
    /// Make the certificate or the key anew.
    #[error("{}: it cannot be used: {why}", .file.display())]
    Unusable {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        why: BoxError,
    },
    /// Put the two that belong together side by side.
    #[error("{}: it is not the private key of the certificate in {}", .key.display(), .cert.display())]
    OtherKey {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        cert: PathBuf,
    },
    /// Install the certificates of this machine, or name your own.
    #[error("this machine has no trusted certificates; install its ca-certificates, or set `ca`")]
    NoRoots,
    /// rustls does not take what was made of the files.
    #[error("TLS cannot be set up: {0}")]
    Refused(BoxError),
}
