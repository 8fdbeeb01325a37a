//! Who may look, and who may change.
//!
//! 1. With a token: everything but health and the page's own files asks for `Authorization: Bearer`. The read-only
//!    token may look. Digests are compared, so that the time it takes tells nothing of a token.
//! 2. Without a token the listener is on loopback, and whoever reaches it may do everything. A browser on this machine
//!    reaches it too, for any site that it shows: so the `Host` must be a loopback name (against DNS rebinding), and a
//!    request of another site is refused.

use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use onlyonce::scope::Principal;

use super::answer::Problem;
use super::router::Endpoint;
use crate::config::{Admin, Hidden};

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Look.
    Reader,
    /// Look and change.
    Operator,
}

/// Knows the tokens, as digests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keeper {
    operator: Option<Principal>,
    reader: Option<Principal>,
    is_secured: bool,
}

impl Keeper {
    pub(crate) fn new(admin: &Admin) -> Self {
        let digest = |token: &Option<Hidden>| token.as_ref().map(|token| digest(token.reveal()));
        Self {
            operator: digest(&admin.token),
            reader: digest(&admin.read_token),
            is_secured: admin.tls.is_some(),
        }
    }

    /// What the caller may do, if it may do what it asks for.
    pub(super) fn admit(&self, head: &Parts, endpoint: Endpoint) -> Result<Role, Problem> {
        if endpoint.is_open() {
            return Ok(Role::Reader);
        }
        let role = match self.operator.is_some() {
            true => self.role(&head.headers)?,
            false => {
                let scheme = if self.is_secured { "https" } else { "http" };
                local(head).and_then(|()| same_site(scheme, &head.headers))?;
                Role::Operator
            }
        };
        match role {
            Role::Reader if endpoint.changes() => {
                Err(Problem::new(StatusCode::FORBIDDEN, "read_only", READ_ONLY))
            }
            role => Ok(role),
        }
    }

    /// The page's files hold no data. Only a name that was bound to this machine from outside is refused.
    pub(super) fn admit_to_page(&self, head: &Parts) -> Result<(), Problem> {
        if self.operator.is_some() { Ok(()) } else { local(head) }
    }

    fn role(&self, headers: &HeaderMap) -> Result<Role, Problem> {
        let sent = bearer(headers).map(digest);
        let [is_operator, is_reader] =
            [&self.operator, &self.reader].map(|known| known.is_some() && *known == sent);
        match (is_operator, is_reader) {
            (true, _) => Ok(Role::Operator),
            (false, true) => Ok(Role::Reader),
            _ => Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", UNAUTHORIZED)),
        }
    }
}

fn digest(token: &str) -> Principal {
    Principal::of("token", token.as_bytes())
}

/// The one credential that was sent; a second one makes it unclear whose word counts.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut sent = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (sent.next(), sent.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn local(head: &Parts) -> Result<(), Problem> {
    match host(head).map(without_port) {
        Some(host) if is_loopback(host) => Ok(()),
        _ => Err(Problem::new(StatusCode::FORBIDDEN, "foreign_host", FOREIGN_HOST)),
    }
}

/// The colons of an address in brackets begin no port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    }
}

fn is_loopback(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_address = address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    name.eq_ignore_ascii_case("localhost") || is_address
}

fn host(head: &Parts) -> Option<&str> {
    let named = head.uri.authority().map(http::uri::Authority::as_str);
    let mut sent = head.headers.get_all(header::HOST).iter();
    match (sent.next(), sent.next()) {
        (Some(host), None) => host.to_str().ok().filter(|host| named.is_none_or(|n| n == *host)),
        (None, _) => named,
        _ => None,
    }
}

fn same_site(scheme: &str, headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let own = format!("{scheme}://{host}");
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("null"));
    let is_own_origin = text(header::ORIGIN).is_none_or(|origin| origin == own);
    let is_own_fetch =
        text(SEC_FETCH_SITE).is_none_or(|site| matches!(site, "same-origin" | "none"));
    match is_own_origin && is_own_fetch {
        true => Ok(()),
        false => Err(Problem::new(StatusCode::FORBIDDEN, "cross_site", CROSS_SITE)),
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const READ_ONLY: &str = "this token may look, not change; use the operator's token";
const UNAUTHORIZED: &str = "send Authorization: Bearer and the admin token";
const FOREIGN_HOST: &str =
    "without a token this listener answers only to localhost; set `token` under [admin]";
const CROSS_SITE: &str = "without a token this listener answers no page of another site";

#[cfg(test)]
mod tests;
