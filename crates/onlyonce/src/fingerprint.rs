//! Fingerprints: whether two requests with one key are the same request.
//!
//! 1. A fingerprint has two digests: `raw`, of the body's bytes as sent, and `canonical`, of what they mean.
//! 2. Equal raw digests are a match in every version. Else canonical ones of the same version are compared.
//! 3. Both cover method, path (after [`normal_path`]; a canonical digest that a record has, with the spelling apart), query as sent (empty is none), content coding, and the media
//!    type with its parameters (of `application/json` and url-encoded forms only the charset): the same bytes in
//!    another charset or between other boundaries are another request. `X-HTTP-Method-Override`,
//!    `X-HTTP-Method` and `X-Method-Override` count. No other header does.
//! 4. JSON (`application/json`, `…+json`): members in any order, whitespace and escapes in any spelling; numbers
//!    are exact decimals, never doubles; array order counts. Doubled member names, bad UTF-8, lone surrogates,
//!    nesting deeper than 64, exponents beyond 64 bits and anything malformed fall back to the raw bytes.
//! 5. Url-encoded forms: decoded, in any order of names; the order of repeats counts. With a list (`items[]`), whose
//!    items some readers tell apart by the order of all fields: as raw bytes.
//! 6. `multipart/form-data`: by parts as the boundary divides them, whatever it is; anything unusual falls back to
//!    the raw bytes.
//! 7. Everything else, every body with a content coding, and every body whose `Content-Type` has more than one line
//!    or unreadable parameters (malformed, doubled, with a star as in `charset*`, more than 64) is compared as bytes.
//!
//! ```
//! use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
//! use onlyonce::fingerprint::{Fingerprint, FingerprintRules, Subject};
//!
//! let of = |body: &str| {
//!     let mut headers = HeaderMap::new();
//!     headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
//!     let (method, path, body) = ("POST", "/charges", body.as_bytes());
//!     let subject = Subject { method, path, query: None, headers: &headers, body };
//!     Fingerprint::of(&FingerprintRules::default(), &subject)
//! };
//! let stored = of(r#"{"amount": 10, "currency": "usd"}"#);
//! assert!(stored.matches(&of(r#"{"currency":"usd","amount":1e1}"#)));
//! assert!(!stored.matches(&of(r#"{"currency":"usd","amount":11}"#)));
//! ```

mod rules;

use std::borrow::Cow;
use std::fmt;

use ctutils::CtEq;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

use crate::body::{self, Kind, MediaType, Odd};
use crate::planted::{Planted, planted};
#[cfg(feature = "run")]
use crate::scope::Secret;
#[cfg(feature = "tower")]
use crate::scope::Spelling;
use crate::scope::normal_path;

pub use crate::pointer::{Pointer, PointerError};
pub use rules::{FingerprintMode, FingerprintRules};

/// A whole SHA-256 digest, never cut.
pub type Digest = [u8; 32];

/// What two requests with one key must have in common. Compare requests by [`matches`](Self::matches);
/// `==` is for records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// The rule that `canonical` was made by, or [`Fingerprint::NONE`].
    pub version: u8,
    /// The digest of what the request means.
    pub canonical: Digest,
    /// The digest of the request's bytes.
    pub raw: Digest,
}

impl Fingerprint {
    /// Requests are not compared at all.
    pub const NONE: u8 = 0;
    /// The canonical form that this code makes.
    pub const VERSION: u8 = 1;

    /// The same form, its digests under the secret of the deployment. Without it nobody can test a guess of a request
    /// against a store, or make a request that has the fingerprint of another.
    pub const KEYED: u8 = 2;

    /// This fingerprint under the deployment's secret, where there is one: as records have it.
    #[cfg(feature = "run")]
    pub(crate) fn kept(self, secret: Option<&Secret>) -> Self {
        let Some(secret) = secret else {
            return self;
        };
        Self {
            version: if self.version == Self::NONE { Self::NONE } else { Self::KEYED },
            canonical: secret.keyed("canonical", &self.canonical),
            raw: Self::kept_raw(self.raw, Some(secret)),
        }
    }

    /// The digest of the bytes as it is in [`kept`](Self::kept).
    #[cfg(feature = "run")]
    pub(crate) fn kept_raw(raw: Digest, secret: Option<&Secret>) -> Digest {
        secret.map_or(raw, |secret| secret.keyed("raw", &raw))
    }

    /// Both digests of a request.
    pub fn of(rules: &FingerprintRules, subject: &Subject<'_>) -> Self {
        Self::with_raw(Self::raw_digest(subject), rules, subject)
    }

    /// The digest of the bytes as sent. What it is made of is fixed for ever, whatever the version.
    pub fn raw_digest(subject: &Subject<'_>) -> Digest {
        let mut hasher = subject.hasher(b"onlyonce raw\0", true);
        let cut = if planted(Planted::FingerprintCutShort) { CUT_SHORT } else { usize::MAX };
        hasher.update(&subject.body[..subject.body.len().min(cut)]);
        hasher.finalize().into()
    }

    /// The fingerprint of a request whose raw digest is known, and did not match.
    pub fn with_raw(raw: Digest, rules: &FingerprintRules, subject: &Subject<'_>) -> Self {
        match rules.mode {
            FingerprintMode::Auto => {
                Self { version: Self::VERSION, canonical: canonical(&raw, rules, subject), raw }
            }
            FingerprintMode::Raw => Self { version: Self::VERSION, canonical: raw, raw },
            FingerprintMode::None => Self { version: Self::NONE, canonical: raw, raw },
        }
    }

    /// The fingerprint of a request that must not match one without this mark, although they are the same otherwise.
    #[cfg(feature = "tower")]
    pub(crate) fn apart(self, mark: &[u8]) -> Self {
        let digest = Sha256::new().chain_update(mark).chain_update(self.canonical);
        Self { canonical: digest.finalize().into(), ..self }
    }

    /// This fingerprint, made with the folded path, of a request whose path is spelled in this way.
    #[cfg(feature = "tower")]
    pub(crate) fn spelled(mut self, spelling: Spelling) -> Self {
        if self.version == Self::NONE {
            // Nothing but the spelling is compared.
            self.canonical = Digest::default();
        }
        let tail = &mut self.canonical[MEANING_BYTES..];
        tail.iter_mut().zip(spelling).for_each(|(byte, other)| *byte ^= other);
        self
    }

    /// The spelling of the path, of a fingerprint that compares nothing else; empty for a path that is spelled as in ids.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
    pub(crate) fn spelling(&self) -> &[u8] {
        match self.canonical.split_at(MEANING_BYTES) {
            (meaning, spelling) if meaning.iter().all(|byte| *byte == 0) && spelling != [0; 4] => {
                spelling
            }
            _ => &[],
        }
    }

    /// Whether these are fingerprints of requests that differ in the spelling of their path alone, or in that where nothing
    /// else is compared.
    pub(crate) fn is_respelled(&self, asked: &Self) -> bool {
        let meanings = [self, asked].map(|print| &print.canonical[..MEANING_BYTES]);
        let is_near = meanings[0].ct_eq(meanings[1]) & self.version.ct_eq(&asked.version);
        let is_same = self.raw.ct_eq(&asked.raw) | self.canonical.ct_eq(&asked.canonical);
        (is_near & !is_same).to_bool()
    }

    /// Whether a request that is `asked` now is the one whose fingerprint `self` was stored.
    ///
    /// Equal raw digests match; canonical ones are compared if both are of one version; and where
    /// either side has [`NONE`](Self::NONE), everything matches but another spelling of a path. Takes the same time wherever digests differ.
    pub fn matches(&self, asked: &Self) -> bool {
        let is_raw = self.raw.ct_eq(&asked.raw);
        let is_canonical =
            self.canonical.ct_eq(&asked.canonical) & self.version.ct_eq(&asked.version);
        let is_uncompared = self.version.ct_eq(&Self::NONE) | asked.version.ct_eq(&Self::NONE);
        let is_same = (is_raw | is_canonical | is_uncompared).to_bool();
        is_same && !self.is_respelled(asked) || planted(Planted::MismatchIgnored)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprint").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The parts of a request that count, each as sent.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The request method.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// What follows the question mark.
    pub query: Option<&'a str>,
    /// The headers. Only those that say what the body is, and which method is meant, are looked at.
    pub headers: &'a HeaderMap,
    /// The whole body.
    pub body: &'a [u8],
}

impl<'a> Subject<'a> {
    /// A hasher that has taken everything but the body, all of it length-prefixed.
    fn hasher(&self, domain: &[u8], counts_boundary: bool) -> Sha256 {
        let mut head = Vec::with_capacity(HEAD_BYTES_USUAL);
        head.extend_from_slice(domain);
        body::put(&mut head, self.method.as_bytes());
        let is_overridden = overrides_method(self.headers);
        for name in METHOD_OVERRIDES {
            let lines = is_overridden.then(|| overriding_lines(self.headers, &name));
            body::put_all(&mut head, lines.into_iter().flatten().map(|(_, line)| line));
        }
        body::put(&mut head, normal_path(self.path).as_bytes());
        body::put_optional(
            &mut head,
            self.query.filter(|query| !query.is_empty()).map(str::as_bytes),
        );
        match MediaType::of(self.headers) {
            Some(media_type) => media_type.put(&mut head, counts_boundary),
            None => head.push(0),
        }
        for coding in self.codings() {
            body::put_optional(&mut head, Some(&coding));
        }
        body::put_optional(&mut head, None);
        Sha256::new_with_prefix(head)
    }

    /// A body with any of them is compared as bytes.
    fn codings(&self) -> impl Iterator<Item = Cow<'a, [u8]>> + use<'a> {
        self.lines(&header::CONTENT_ENCODING).filter_map(|line| body::coding(Some(line)))
    }

    fn lines(&self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.headers.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("method", &self.method).finish_non_exhaustive()
    }
}

fn canonical(raw: &Digest, rules: &FingerprintRules, subject: &Subject<'_>) -> Digest {
    let (form, bytes) = match meaning(rules, subject) {
        Ok((form, bytes)) => (form, Cow::Owned(bytes)),
        Err(Odd) => (Form::Raw, Cow::Borrowed(&raw[..])),
    };
    // Parts that were read have done with their boundary.
    let counts_boundary = !matches!(form, Form::Parts);
    let mut hasher = subject.hasher(b"onlyonce canonical\0", counts_boundary);
    hasher.update([Fingerprint::VERSION, form as u8]);
    hasher.update(bytes);
    hasher.finalize().into()
}

/// The body's canonical bytes, if it can be compared by meaning.
fn meaning(rules: &FingerprintRules, subject: &Subject<'_>) -> Result<(Form, Vec<u8>), Odd> {
    let media_type = MediaType::of(subject.headers).filter(|_| subject.codings().next().is_none());
    let bytes = subject.body;
    match media_type.ok_or(Odd)?.kind()? {
        Kind::Json => {
            Ok((Form::Json, body::json::canonical(bytes, &rules.include, &rules.exclude)?))
        }
        Kind::Form => Ok((Form::Fields, body::form::canonical(bytes)?)),
        Kind::Multipart(boundary) => {
            Ok((Form::Parts, body::multipart::canonical(bytes, boundary)?))
        }
        Kind::Opaque => Err(Odd),
    }
}

// Hashed before the body, so that a body's meaning and its bytes can never be taken for each other.
#[derive(Clone, Copy)]
enum Form {
    Raw = 0,
    Json = 1,
    Fields = 2,
    Parts = 3,
}

/// Whether a header may stand in for the method. Almost no request has one, and to look at all names is cheaper than to
/// look for three.
pub fn overrides_method(headers: &HeaderMap) -> bool {
    headers.keys().any(is_method_override)
}

/// Whether frameworks may take this header for the method: one of [`METHOD_OVERRIDES`], or its spelling with `_`, which is
/// the same name for CGI and WSGI.
pub fn is_method_override(name: &HeaderName) -> bool {
    // Most names are of another length, or begin otherwise.
    name.as_str().starts_with('x')
        && METHOD_OVERRIDES.iter().any(|one| is_one_name(one.as_str(), name.as_str()))
}

/// Whether these are one name where `_` counts as `-`.
pub fn is_one_name(name: &str, other: &str) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.len() == other.len() && name.bytes().map(dashed).eq(other.bytes().map(dashed))
}

/// The lines of the header with this name, then those of its spellings with `_`.
fn overriding_lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<(&'a str, &'a [u8])> {
    let is_one =
        |(other, _): &(&HeaderName, &HeaderValue)| is_one_name(name.as_str(), other.as_str());
    let lines = headers.iter().filter(is_one);
    let mut lines: Vec<_> = lines.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    // Stable: the lines of one name keep their order. `-` is before `_`.
    lines.sort_by_key(|(name, _)| *name);
    lines
}

/// Headers that frameworks take for the method, in place of the request's own.
pub const METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];
const HEAD_BYTES_USUAL: usize = 256;
/// Of a canonical digest: how a path is spelled changes the bytes behind them, and those alone.
const MEANING_BYTES: usize = 28;
/// What a planted bug looks at of a body.
const CUT_SHORT: usize = 16;

#[cfg(test)]
mod tests;
