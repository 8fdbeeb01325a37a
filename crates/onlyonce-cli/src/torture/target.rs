//! What is attacked: addresses, and the request as the user wrote it, with places for marker and key.

use std::net::IpAddr;

use super::plan::{Caller, Shot, Trial, Variant};
use super::secrets::Secrets;

/// What is attacked.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) nodes: Vec<Address>,
    pub(crate) method: String,
    /// Of the key.
    pub(crate) key_header: String,
    /// For all requests: names and values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) auth_a: Vec<(String, String)>,
    pub(crate) auth_b: Vec<(String, String)>,
    pub(crate) content_type: Option<String>,
    pub(crate) body: String,
    /// A body that the service refuses.
    pub(crate) refused_body: Option<String>,
    pub(crate) secrets: Secrets,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query, with places for the marker.
    pub(crate) path: String,
}

/// A request, ready for the wire.
#[derive(Clone, Debug)]
pub(crate) struct Rendered {
    pub(crate) path: String,
    /// Names and values as they are sent, the key among them; values may be any bytes.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Address {
    /// Reads `http://host:port/path`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("an address must look like http://127.0.0.1:8080/path, but is {text}");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains('@') {
            return Err("an address must not carry credentials; use -H or --auth-a".to_owned());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (authority, if is_tls { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong());
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { is_tls, host, port, path })
    }

    /// Whether nobody else can be hurt.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// As the header `Host` has it.
    pub(crate) fn authority(&self) -> String {
        match (self.host.contains(':'), self.port, self.is_tls) {
            (false, 80, false) | (false, 443, true) => self.host.clone(),
            (false, port, _) => format!("{}:{port}", self.host),
            (true, port, _) => format!("[{}]:{port}", self.host),
        }
    }

    /// As it was given.
    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.authority())
    }
}

impl Target {
    pub(crate) fn node(&self, number: usize) -> &Address {
        &self.nodes[number % self.nodes.len()]
    }

    /// Whether a marker can be seen by whoever counts executions.
    pub(crate) fn carries_marker(&self) -> bool {
        let in_headers = self.headers.iter().any(|(_, value)| value.contains("{marker}"));
        let in_paths = self.nodes.iter().all(|node| node.path.contains("{marker}"));
        self.body.contains("{marker}") || in_paths || in_headers
    }

    /// The request of a shot.
    pub(crate) fn render(&self, trial: &Trial, shot: &Shot) -> Rendered {
        let node = self.node(shot.node);
        let marker = match shot.variant {
            Variant::OtherMarker => &trial.other_marker,
            _ => &trial.marker,
        };
        let filled = |text: &str| filled(text, marker, &trial.key);
        let mut path = filled(&node.path);
        if shot.variant == Variant::OtherQuery {
            path =
                format!("{path}{}onlyonce_torture=1", if path.contains('?') { '&' } else { '?' });
        }
        let body = self.body_of(shot.variant, &filled);
        let mut headers = vec![
            ("Host".to_owned(), node.authority().into_bytes()),
            ("User-Agent".to_owned(), format!("onlyonce-torture ({marker})").into_bytes()),
            ("Accept".to_owned(), b"*/*".to_vec()),
        ];
        if let Some(media_type) = &self.content_type {
            let other = shot.variant == Variant::OtherType;
            let shown = if other { "text/plain" } else { media_type };
            headers.push(("Content-Type".to_owned(), shown.as_bytes().to_vec()));
        }
        let auth = if shot.caller == Caller::A { &self.auth_a } else { &self.auth_b };
        let given = self.headers.iter().chain(auth);
        headers.extend(given.map(|(name, value)| (name.clone(), filled(value).into_bytes())));
        headers.extend(shot.keys.iter().map(|key| (self.key_header.clone(), key.clone())));
        headers.push(("Content-Length".to_owned(), body.len().to_string().into_bytes()));
        Rendered { path, headers, body }
    }

    fn body_of(&self, variant: Variant, filled: &impl Fn(&str) -> String) -> Vec<u8> {
        let body = filled(&self.body);
        let changed = match variant {
            Variant::Same | Variant::OtherMarker | Variant::OtherType | Variant::OtherQuery => body,
            Variant::LongTail(end) => {
                with_member(&body, &format!("{}{end}", "x".repeat(LONG_BYTES)))
            }
            Variant::Respaced => body.replacen('{', "{ ", 1),
            Variant::Refused => match &self.refused_body {
                Some(refused) => filled(refused),
                None => body.trim_end().trim_end_matches('}').to_owned(),
            },
        };
        changed.into_bytes()
    }
}

impl Rendered {
    /// The bytes of it in HTTP/1.1.
    pub(crate) fn bytes(&self, method: &str) -> Vec<u8> {
        let mut bytes = format!("{method} {} HTTP/1.1\r\n", self.path).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// With marker, key and amount in their places.
pub(crate) fn filled(text: &str, marker: &str, key: &str) -> String {
    text.replace("{marker}", marker).replace("{key}", key).replace("{amount}", "100")
}

/// A member more, at the end of a JSON object.
fn with_member(body: &str, text: &str) -> String {
    let member = format!("\"onlyonce_torture\":\"{text}\"}}");
    match body.trim_end().strip_suffix('}') {
        Some(open) if open.trim_end().ends_with('{') => format!("{open}{member}"),
        Some(open) => format!("{open},{member}"),
        None => format!("{body}{text}"),
    }
}

/// Longer than what a careless fingerprint reads.
const LONG_BYTES: usize = 9_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_its_defaults() {
        let plain = Address::parse("http://127.0.0.1:8080/charges?a={marker}").unwrap();
        assert_eq!((plain.host.as_str(), plain.port), ("127.0.0.1", 8080));
        assert_eq!(plain.path, "/charges?a={marker}");
        let secure = Address::parse("https://[::1]").unwrap();
        assert_eq!((secure.port, secure.path.as_str(), secure.is_loopback()), (443, "/", true));
        assert_eq!(Address::parse("http://h:81?x").unwrap().path, "/?x");
        assert!(!Address::parse("http://10.0.0.1/").unwrap().is_loopback());
        for wrong in ["ftp://x/", "127.0.0.1:80", "http:///x", "http://u:p@h/", "http://h:x/"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_member_is_added_to_any_object() {
        assert_eq!(with_member("{}", "x"), r#"{"onlyonce_torture":"x"}"#);
        assert_eq!(with_member(r#"{"a":1} "#, "x"), r#"{"a":1,"onlyonce_torture":"x"}"#);
        assert_eq!(with_member("a=1", "x"), "a=1x");
    }
}
