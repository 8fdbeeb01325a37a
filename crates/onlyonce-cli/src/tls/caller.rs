//! Who a client is, by the certificate that it has presented.

use onlyonce::scope::Principal;
use rustls::ServerConnection;
use webpki::EndEntityCert;

/// What tells the client of a connection apart. Its certificate is verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientCertificate {
    /// By issuer and subject: a renewed certificate has the same. `None` where it has no subject.
    pub(crate) name: Option<Principal>,
    /// By the public key: a renewed certificate may have another.
    pub(crate) key: Principal,
}

impl ClientCertificate {
    /// The one that was verified in the handshake; `None` where none was asked for.
    pub(crate) fn of(connection: &ServerConnection) -> Option<Self> {
        let presented = connection.peer_certificates()?.first()?;
        // The handshake has read it by the same rules.
        let certificate = EndEntityCert::try_from(presented).ok()?;
        let (issuer, subject) = (certificate.issuer(), certificate.subject());
        // The length tells where the issuer ends.
        let name = [&(issuer.len() as u64).to_be_bytes()[..], issuer, subject].concat();
        let key = certificate.subject_public_key_info();
        Some(Self {
            name: (!subject.is_empty()).then(|| Principal::of("mtls", &name)),
            key: Principal::of("mtls:spki", &key),
        })
    }
}
