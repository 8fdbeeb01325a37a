//! `trusted_peers`: whose headers name the caller.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::HeaderName;
use http::header::AUTHORIZATION;
use ipnet::IpNet;

use super::error::{Remark, Remarks};
use super::field::Field;
use super::principal::{PrincipalRule, PrincipalSource};
use super::rules::Rules;

/// The peers that may say in a header who asks.
///
/// ```
/// use onlyonce_cli::config::TrustedPeers;
///
/// let everybody = TrustedPeers::default();
/// assert!(everybody.trusts("203.0.113.7".parse()?));
/// let proxies = TrustedPeers::new(["10.0.0.0/8".parse()?, "::1".parse()?]);
/// assert!(proxies.trusts("10.1.2.3".parse()?) && proxies.trusts("::ffff:10.1.2.3".parse()?));
/// assert!(!proxies.trusts("203.0.113.7".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedPeers(Vec<Peers>);

impl TrustedPeers {
    /// These; where there are none, everybody.
    pub fn new(peers: impl IntoIterator<Item = Peers>) -> Self {
        Self(peers.into_iter().collect())
    }

    /// Whether a header of this peer may name the caller.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        // A listener for both versions sees IPv4 peers under addresses of IPv6.
        let peer = peer.to_canonical();
        self.is_everybody() || self.0.iter().any(|peers| peers.0.contains(&peer))
    }

    /// Whether none are named.
    pub fn is_everybody(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are named.
    pub fn named(&self) -> &[Peers] {
        &self.0
    }

    pub(super) fn read(field: Field<'_>) -> Result<Self, Remarks> {
        Ok(Self(field.all(Field::parsed)?))
    }
}

impl fmt::Display for TrustedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&peers.join(", "))
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An address, or a network: `::1`, `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers(IpNet);

impl FromStr for Peers {
    type Err = PeersError;

    fn from_str(text: &str) -> Result<Self, PeersError> {
        let network = match text.parse::<IpAddr>() {
            Ok(address) => Ok(IpNet::from(address.to_canonical())),
            Err(_) => text.parse::<IpNet>(),
        };
        match network {
            Ok(network) if network.trunc() == network => Ok(Self(network)),
            Ok(network) => Err(PeersError::Bits(network.trunc())),
            Err(_) => Err(PeersError::Form),
        }
    }
}

/// Why a text names no peers. Write it as the message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeersError {
    /// Write an address or a network.
    #[error(
        "peers are an address such as 10.0.0.1 or ::1, or a network such as 10.0.0.0/8; names are not looked up"
    )]
    Form,
    /// Write the network's own address.
    #[error("bits are set after the prefix; did you mean {0}?")]
    Bits(IpNet),
}

/// Whether anybody may send this header, because it proves itself: the service verifies what it says.
pub(crate) fn is_proof(header: &HeaderName) -> bool {
    *header == AUTHORIZATION || *header == X_API_KEY
}

/// A header that names the caller, and that every client may send.
pub(super) fn unproven(rules: &Rules) -> Option<Remark> {
    let PrincipalRule::Sources(sources) = &rules.principal else { return None };
    let name = sources.iter().find_map(|source| match source {
        PrincipalSource::Header(name) if !is_proof(name) => Some(name),
        _ => None,
    })?;
    let said = ["principal", "trusted_peers"].iter().find_map(|name| rules.said.here(name))?;
    let message = format!(
        "`principal`: whoever connects can send the header {name} and pass for another caller; name the proxies that set it in `trusted_peers`"
    );
    rules.trusted_peers.is_everybody().then(|| Remark::new(said, message))
}

/// Peers that a table trusts, where no header names the caller, neither there nor in a table that takes its values over.
pub(super) fn unread<'r>(
    rules: &Rules,
    mut users: impl Iterator<Item = &'r Rules>,
) -> Option<Remark> {
    let said = rules.said.here("trusted_peers").filter(|_| !rules.trusted_peers.is_everybody())?;
    let message = "`trusted_peers` has no effect: `principal` names no header that a proxy sets, and every other credential is taken from everybody; set `principal` to \"header:NAME\", or remove `trusted_peers`";
    (!users.any(|rules| names_a_header(&rules.principal))).then(|| Remark::new(said, message))
}

fn names_a_header(rule: &PrincipalRule) -> bool {
    let is_header = |source: &PrincipalSource| matches!(source, PrincipalSource::Header(name) if !is_proof(name));
    matches!(rule, PrincipalRule::Sources(sources) if sources.iter().any(is_header))
}

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_addresses_and_networks() {
        for text in ["10.0.0.0/8", "10.0.0.1", "::1", "fd00::/8", "0.0.0.0/0", "::ffff:10.0.0.1"] {
            assert!(text.parse::<Peers>().is_ok(), "{text}");
        }
        for text in ["", "proxy.internal", "10.0.0.0/33", "10.0.0.1:80", "10.0.0", "*"] {
            assert_eq!(text.parse::<Peers>(), Err(PeersError::Form), "{text}");
        }
        let meant = "10.0.0.0/8".parse().unwrap();
        assert_eq!("10.0.0.1/8".parse::<Peers>(), Err(PeersError::Bits(meant)));
    }

    // R26
    #[test]
    fn a_peer_is_one_under_either_of_its_addresses() {
        let peers = TrustedPeers::new(["::ffff:10.0.0.1".parse().unwrap()]);
        assert!(peers.trusts("10.0.0.1".parse().unwrap()));
        assert!(peers.trusts("::ffff:10.0.0.1".parse().unwrap()));
        assert!(!peers.trusts("10.0.0.2".parse().unwrap()));
        assert!(!peers.trusts("::1".parse().unwrap()));
    }
}
