//! Encryption for the sinks whose clients leave it to us.

use rustls::{ClientConfig, RootCertStore};

/// Trusts what this machine trusts; `None` if that is nobody. It does not ask for the provider of the process: there may be
/// none, or two to choose from.
pub(super) fn by_machine() -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return None;
    }
    let provider = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(provider.into());
    let config = config.with_safe_default_protocol_versions().expect("ring has all of them");
    Some(config.with_root_certificates(roots).with_no_client_auth())
}
