//! The bytes that an operation id is hashed from.

use std::collections::BTreeMap;

use super::{Principal, SCOPE_VERSION, Scope, ScopePart, folded_path, normal_path};
use crate::body::json::{self, Found};
use crate::fingerprint::Pointer;
use crate::key::Key;
use crate::planted::{Planted, planted};

/// The listed parts of a request's scope, in fixed order, then the key.
pub(crate) fn of_request(parts: &[ScopePart], scope: &Scope<'_>, key: &Key) -> Vec<u8> {
    let mut encoded = Encoding::new(Kind::Request);
    encoded.add_parts(parts, scope);
    encoded.ended_by(key.as_str())
}

/// The route, the principal in any case, the listed parts of the scope, then what the token says itself.
#[cfg(feature = "tower")]
pub(crate) fn of_token(route: &str, parts: &[ScopePart], scope: &Scope<'_>, said: &str) -> Vec<u8> {
    let mut encoded = Encoding::new(Kind::Token);
    encoded.add(Tag::Namespace, route.as_bytes());
    encoded.add(Tag::Principal, scope.principal.as_bytes());
    encoded.add_parts(parts, scope);
    encoded.ended_by(said)
}

/// The names of the listed headers, in order and each once.
fn headers_of(parts: &[ScopePart]) -> Vec<&str> {
    let names = parts.iter().filter_map(|part| match part {
        ScopePart::Header(name) => Some(name.as_str()),
        _ => None,
    });
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The listed pointers, in order and each once.
fn pointers_of(parts: &[ScopePart]) -> BTreeMap<String, &Pointer> {
    let pointers = parts.iter().filter_map(|part| match part {
        ScopePart::Json(pointer) => Some((pointer.to_string(), pointer)),
        _ => None,
    });
    pointers.collect()
}

/// A namespace and a principal, then the key.
pub(crate) fn of_namespace(namespace: &str, principal: &Principal, key: &Key) -> Vec<u8> {
    let mut encoded = Encoding::new(Kind::Namespace);
    encoded.add(Tag::Namespace, namespace.as_bytes());
    encoded.add(Tag::Principal, principal.as_bytes());
    encoded.ended_by(key.as_str())
}

/// The key alone.
pub(crate) fn of_key(key: &str) -> Vec<u8> {
    Encoding::new(Kind::Key).ended_by(key)
}

struct Encoding(Vec<u8>);

impl Encoding {
    fn new(kind: Kind) -> Self {
        let mut bytes = Vec::with_capacity(BYTES_USUAL);
        bytes.extend_from_slice(DOMAIN);
        bytes.extend_from_slice(&[SCOPE_VERSION, kind as u8]);
        Self(bytes)
    }

    fn add(&mut self, tag: Tag, part: &[u8]) {
        if planted(Planted::ScopeJoinedWithColon) {
            self.0.push(b':');
            return self.0.extend_from_slice(part);
        }
        self.0.push(tag as u8);
        self.0.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
    }

    fn add_parts(&mut self, parts: &[ScopePart], scope: &Scope<'_>) {
        for part in ScopePart::DEFAULT.iter().filter(|part| parts.contains(part)) {
            match part {
                ScopePart::Principal if planted(Planted::PrincipalIgnored) => {}
                ScopePart::Principal => self.add(Tag::Principal, scope.principal.as_bytes()),
                ScopePart::Host => self.add(Tag::Host, plain_host(scope.host).as_bytes()),
                ScopePart::Method => self.add(Tag::Method, scope.method.as_bytes()),
                ScopePart::Path => self.add(Tag::Path, folded_path(scope.path).as_bytes()),
                ScopePart::LiteralPath | ScopePart::Header(_) | ScopePart::Json(_) => {}
            }
        }
        if parts.contains(&ScopePart::LiteralPath) {
            self.add(Tag::LiteralPath, normal_path(scope.path).as_bytes());
        }
        for name in headers_of(parts) {
            self.add(Tag::Header, name.as_bytes());
            for value in scope.headers.get_all(name) {
                self.add(Tag::Value, value.as_bytes());
            }
        }
        for (name, pointer) in pointers_of(parts) {
            self.add(Tag::Json, name.as_bytes());
            if let Ok(Some(Found::Text(value))) = json::find(scope.body, pointer) {
                self.add(Tag::Value, value.as_bytes());
            }
        }
    }

    fn ended_by(mut self, key: &str) -> Vec<u8> {
        self.add(Tag::Key, key.as_bytes());
        self.0
    }
}

/// The host's lower-case name, or bracketed address, without its port.
pub(super) fn plain_host(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && is_whole_host(name) => name,
        _ => host,
    };
    name.to_ascii_lowercase()
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// False for the first half of an address without brackets, whose colons are no port's.
fn is_whole_host(name: &str) -> bool {
    name.ends_with(']') || !name.contains(':')
}

#[derive(Clone, Copy)]
enum Kind {
    Request = 1,
    Namespace = 2,
    Key = 3,
    #[cfg(feature = "tower")]
    Token = 4,
}

// Written into every id: a number is never given to another part.
#[derive(Clone, Copy)]
enum Tag {
    Principal = 1,
    Host = 2,
    Method = 3,
    Path = 4,
    Namespace = 5,
    Key = 6,
    Header = 7,
    Value = 8,
    Json = 9,
    LiteralPath = 10,
}

const DOMAIN: &[u8] = b"onlyonce scope\0";
const BYTES_USUAL: usize = 256;
