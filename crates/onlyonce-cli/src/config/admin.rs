//! The listener for operators.

use std::fmt;
use std::net::SocketAddr;

use http::HeaderValue;

use super::Config;
use super::error::{Remark, Remarks};
use super::field::Field;
use super::names::ADMIN;
use super::tls::TlsRule;

/// The listener for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What operators must present.
    pub token: Option<Hidden>,
    /// What those must present who may only look.
    pub read_token: Option<Hidden>,
    /// How it speaks TLS, if it does.
    pub tls: Option<TlsRule>,
}

impl Admin {
    /// One at this address, without a token.
    pub fn at(listen: SocketAddr) -> Self {
        Self { listen, token: None, read_token: None, tls: None }
    }

    pub(super) fn read(field: Field<'_>) -> Result<Self, Remarks> {
        let mut admin = Self::at(LISTEN);
        field.each(&ADMIN, |field| {
            match field.name.name {
                "listen" => admin.listen = field.listen_address()?,
                "token" => admin.token = Some(token(field)?),
                "tls" => admin.tls = Some(TlsRule::read(field)?),
                _ => admin.read_token = Some(token(field)?),
            }
            Ok(())
        })?;
        Ok(admin)
    }
}

impl Config {
    /// Whether the listener for operators may be opened. Checked when a file is read and when flags are added.
    pub(super) fn check_admin(&self) -> Result<(), AdminError> {
        match &self.admin {
            Some(admin) if admin.read_token.is_some() && admin.token.is_none() => {
                Err(AdminError::OnlyReaders)
            }
            Some(admin) if admin.token.is_some() && admin.token == admin.read_token => {
                Err(AdminError::SameToken)
            }
            Some(admin) if admin.token.is_none() && !admin.listen.ip().is_loopback() => {
                Err(AdminError::Open(admin.listen))
            }
            Some(admin) if admin.listen == self.listen && admin.listen.port() != 0 => {
                Err(AdminError::SameAddress(admin.listen))
            }
            _ => Ok(()),
        }
    }
}

/// Why the listener for operators is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// Set `token` under `[admin]`, or listen on a loopback address.
    #[error(
        "anyone could reach the admin listener at {0}; set `token` under [admin], or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// Set `token` too.
    #[error(
        "`read_token` without `token` would let everyone change things; set `token` under [admin]"
    )]
    OnlyReaders,
    /// Let them differ.
    #[error(
        "`token` and `read_token` are the same, so that readers could change things; let them differ"
    )]
    SameToken,
    /// Give it another port.
    #[error(
        "`listen` and the admin listener have the same address {0}; give one of them another port"
    )]
    SameAddress(SocketAddr),
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Compare it in constant time, and never log it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(..)")
    }
}

/// One that no header can carry could never be presented.
fn token(field: Field<'_>) -> Result<Hidden, Remark> {
    let token = field.confidential()?;
    match HeaderValue::from_str(&token) {
        Ok(_) if token.trim() == token => Ok(Hidden(token)),
        _ => Err(field.wrong("it has characters that no header may have, or spaces around it")),
    }
}

const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8081);
