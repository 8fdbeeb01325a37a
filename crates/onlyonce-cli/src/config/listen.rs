//! Where a listener is opened.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads an IP address (or `localhost`, which is 127.0.0.1) and a port.
///
/// ```
/// use onlyonce_cli::config::listen_address;
///
/// assert_eq!(listen_address("localhost:8080")?, listen_address("127.0.0.1:8080")?);
/// # Ok::<(), onlyonce_cli::config::ListenError>(())
/// ```
pub fn listen_address(text: &str) -> Result<SocketAddr, ListenError> {
    match text.rsplit_once(':') {
        Some((host, port)) if host.eq_ignore_ascii_case("localhost") => {
            let port = port.parse().map_err(|_| ListenError::Port)?;
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
        }
        Some(("", _)) => Err(ListenError::NoAddress),
        Some((_, port)) if port.parse::<u16>().is_err() => Err(ListenError::Port),
        Some(_) => text.parse().map_err(|_| ListenError::Name),
        None => Err(ListenError::Port),
    }
}

/// Why a text is no address to listen on. Write it as the message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Put an address before the port.
    #[error(
        "the address is missing: write 127.0.0.1:PORT for this machine only, or 0.0.0.0:PORT for every network"
    )]
    NoAddress,
    /// Put a port after the address.
    #[error(
        "the port is missing, or is no number up to 65535: write ADDRESS:PORT, such as 127.0.0.1:8080"
    )]
    Port,
    /// Write an IP address.
    #[error("it is no IP address: write one, or localhost, such as 127.0.0.1:8080")]
    Name,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_localhost_and_a_port_are_taken() {
        for text in ["127.0.0.1:8080", "0.0.0.0:0", "[::1]:80"] {
            assert_eq!(listen_address(text).unwrap().to_string(), text);
        }
        assert_eq!(listen_address("LocalHost:81").unwrap().to_string(), "127.0.0.1:81");
    }

    #[test]
    fn anything_else_is_told_what_it_lacks() {
        for (text, error) in [
            (":8080", ListenError::NoAddress),
            ("", ListenError::Port),
            ("127.0.0.1", ListenError::Port),
            ("localhost", ListenError::Port),
            ("localhost:http", ListenError::Port),
            ("127.0.0.1:99999", ListenError::Port),
            ("example.com:80", ListenError::Name),
            ("http://127.0.0.1:80", ListenError::Name),
        ] {
            assert_eq!(listen_address(text), Err(error), "{text}");
        }
    }
}
