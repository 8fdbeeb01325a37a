//! TLS by a configuration: what its files hold, and what is made of them.
//!
//! 1. All files are read before anything is used, at the start and at each reload. What is made of them never changes:
//!    connections that are open keep what they began with.
//! 2. What makes TLS impossible is an error. What is only careless is a warning: a certificate that has expired, a key that
//!    everybody may read.
//! 3. TLS 1.2 and 1.3, and the cipher suites of rustls, all of them with forward secrecy. There is no switch for less.

mod caller;
mod error;
mod files;
mod handshakes;
mod inward;
mod outward;

use tokio_rustls::TlsAcceptor;

use self::files::Files;
use crate::config::Config;

pub(crate) use self::caller::ClientCertificate;
pub(crate) use self::error::TlsError;
pub(crate) use self::handshakes::{Handshakes, shaken};
pub(crate) use self::outward::{Outward, client_config};

/// What the files of one configuration make.
#[derive(Clone)]
pub(crate) struct Secured {
    /// For clients.
    pub(crate) listener: Option<TlsAcceptor>,
    /// For operators.
    pub(crate) admin: Option<TlsAcceptor>,
    /// To services.
    pub(crate) upstream: Outward,
    /// What is allowed, but careless, in sentences that name the file.
    pub(crate) warnings: Vec<String>,
}

impl Secured {
    /// Reads all files that the configuration names.
    ///
    /// # Errors
    /// The first file that TLS is impossible with.
    pub(crate) fn by(config: &Config) -> Result<Self, TlsError> {
        let mut files = Files::default();
        let listener = config.tls.as_ref();
        let admin = config.admin.as_ref().and_then(|admin| admin.tls.as_ref());
        let listener = listener.map(|rule| inward::acceptor(rule, &LISTENER, &mut files));
        let admin = admin.map(|rule| inward::acceptor(rule, &ADMIN, &mut files));
        Ok(Self {
            listener: listener.transpose()?,
            admin: admin.transpose()?,
            upstream: Outward::by(config.upstream_tls.as_ref(), &mut files)?,
            warnings: files.warnings,
        })
    }
}

impl std::fmt::Debug for Secured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secured")
            .field("listener", &self.listener.is_some())
            .field("admin", &self.admin.is_some())
            .finish_non_exhaustive()
    }
}

/// The protocols of each listener, the preferred one first.
const LISTENER: [&[u8]; 2] = [b"h2", b"http/1.1"];
const ADMIN: [&[u8]; 1] = [b"http/1.1"];
