//! What a key must look like to be taken.

use std::fmt;

use super::KeyError;

/// The rules that keys are read by.
///
/// ```
/// use onlyonce::key::{Key, KeyError, KeyFormat, KeyRules};
///
/// let rules = KeyRules { format: KeyFormat::Uuid, ..KeyRules::default() };
/// assert_eq!(Key::from_text("abc", &rules), Err(KeyError::Format(KeyFormat::Uuid)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRules {
    /// How keys are written in header fields. Default: lenient.
    pub syntax: KeySyntax,
    /// The least and the most characters of a decoded key. Default: 1 and 255. Short keys collide.
    pub length: (usize, usize),
    /// The format that keys must have. Default: any.
    pub format: KeyFormat,
    /// Constants that are refused, in whatever case. Default: none; see [`KeyRules::CONSTANTS`].
    pub denied: Vec<Box<str>>,
}

impl KeyRules {
    /// What broken clients are known to send instead of a key of their own.
    pub const CONSTANTS: [&str; 4] =
        ["00000000-0000-0000-0000-000000000000", "null", "undefined", "test"];

    pub(super) fn check(&self, text: &str) -> Result<(), KeyError> {
        self.check_length(text.len())?;
        check_characters(text)?;
        self.format.check(text)?;
        match self.denied.iter().any(|denied| denied.eq_ignore_ascii_case(text)) {
            true => Err(KeyError::Denied),
            false => Ok(()),
        }
    }

    fn check_length(&self, length: usize) -> Result<(), KeyError> {
        let (min, max) = self.length;
        match length {
            0 => Err(KeyError::Empty),
            _ if (min..=max).contains(&length) => Ok(()),
            _ => Err(KeyError::Length { length, min, max }),
        }
    }
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            syntax: KeySyntax::default(),
            length: (1, KEY_BYTES_MAX),
            format: KeyFormat::default(),
            denied: Vec::new(),
        }
    }
}

/// How keys are written in header fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeySyntax {
    /// `"abc"` and `abc` are the same key, so that an SDK which begins to quote runs nothing twice.
    #[default]
    Lenient,
    /// Only the string of RFC 9651, in double quotes.
    Strict,
}

/// A format that a route may ask of its keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFormat {
    /// Whatever is printable.
    #[default]
    Any,
    /// A UUID of any version in its usual form with four hyphens, in whatever case.
    Uuid,
}

impl KeyFormat {
    fn check(self, text: &str) -> Result<(), KeyError> {
        match self {
            Self::Uuid if !is_uuid(text) => Err(KeyError::Format(self)),
            Self::Any | Self::Uuid => Ok(()),
        }
    }
}

impl fmt::Display for KeyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Uuid => "uuid",
        })
    }
}

fn check_characters(text: &str) -> Result<(), KeyError> {
    match text {
        _ if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) => Err(KeyError::NotPrintable),
        _ if text.bytes().all(|byte| byte == b' ') => Err(KeyError::Empty),
        _ => Ok(()),
    }
}

fn is_uuid(text: &str) -> bool {
    let groups = text.split('-').map(str::len);
    groups.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// The most characters that a key may have.
pub(crate) const KEY_BYTES_MAX: usize = 255;
