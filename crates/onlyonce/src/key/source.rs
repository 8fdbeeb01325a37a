//! Where in a request a key may be.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

use crate::fingerprint::{Pointer, PointerError};

/// A place in a request where a key may be.
///
/// ```
/// use onlyonce::key::KeySource;
///
/// let source: KeySource = "json:/transfer/idempotency_key".parse()?;
/// assert!(source.needs_body());
/// assert_eq!(source.to_string(), "json:/transfer/idempotency_key");
/// # Ok::<(), onlyonce::key::KeySourceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeySource {
    /// A header field, `header:Idempotency-Key`.
    Header(HeaderName),
    /// A string or a number in a JSON body, `json:/pointer`. Not for references that people use again.
    Json(Pointer),
    /// A query parameter, `query:name`.
    Query(Box<str>),
    /// A field of a form body, url-encoded or multipart, `form:name`.
    Form(Box<str>),
    /// The source and the id of a CloudEvent together, `cloudevent`: of the headers `ce-source` and `ce-id`, or of a body
    /// of the media type `application/cloudevents+json`.
    CloudEvent,
    /// A digest of the body alone, `body`: equal bodies are one operation, whatever the headers and the query say. JSON
    /// counts by its values, anything else by its bytes. Used where no other source but the fingerprint has a key.
    Body {
        /// A value of a JSON body that does not count, `body-without:/pointer`.
        without: Option<Pointer>,
    },
    /// The request's own fingerprint, `fingerprint`: equal requests are one operation. Used where no
    /// other source has a key.
    Fingerprint,
}

impl KeySource {
    /// Whether the body must be read before the key is known.
    pub fn needs_body(&self) -> bool {
        !matches!(self, Self::Header(_) | Self::Query(_))
    }
}

impl Default for KeySource {
    fn default() -> Self {
        Self::Header(HeaderName::from_static("idempotency-key"))
    }
}

impl FromStr for KeySource {
    type Err = KeySourceError;

    fn from_str(text: &str) -> Result<Self, KeySourceError> {
        let (place, name) = text.split_once(':').unwrap_or((text, ""));
        match place {
            "header" => Ok(Self::Header(name.parse().map_err(|_| KeySourceError::HeaderName)?)),
            "json" => Ok(Self::Json(name.parse()?)),
            "query" => named(name).map(Self::Query),
            "form" => named(name).map(Self::Form),
            "cloudevent" if text == place => Ok(Self::CloudEvent),
            "body" if text == place => Ok(Self::Body { without: None }),
            "body-without" => Ok(Self::Body { without: Some(name.parse()?) }),
            "fingerprint" if text == place => Ok(Self::Fingerprint),
            _ => Err(KeySourceError::Place),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Form(name) => write!(f, "form:{name}"),
            Self::CloudEvent => f.write_str("cloudevent"),
            Self::Body { without: None } => f.write_str("body"),
            Self::Body { without: Some(pointer) } => write!(f, "body-without:{pointer}"),
            Self::Fingerprint => f.write_str("fingerprint"),
        }
    }
}

/// Why a text names no source of keys. Correct the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySourceError {
    /// Begin with one of the known places.
    #[error(
        "a key source is header:NAME, json:/pointer, query:name, form:name, cloudevent, body, body-without:/pointer or fingerprint"
    )]
    Place,
    /// Give a name that HTTP allows for a header field.
    #[error("the key source names no valid header field")]
    HeaderName,
    /// Give the parameter's or the field's name after the colon.
    #[error("the key source lacks a name after its colon")]
    NoName,
    /// Correct the pointer.
    #[error("the key source has an invalid pointer")]
    Pointer(#[from] PointerError),
}

fn named(name: &str) -> Result<Box<str>, KeySourceError> {
    match name {
        "" => Err(KeySourceError::NoName),
        _ => Ok(name.into()),
    }
}
