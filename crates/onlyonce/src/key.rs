//! Keys: what a client sends to say "this is the same operation as before".
//!
//! 1. A header's key is an RFC 9651 string, `"abc"`. By default the bare form `abc` counts too, and as the same key.
//! 2. Bare keys are visible ASCII except `"` `\` `,` `;`. Parameters of a quoted key are checked, then ignored.
//! 3. Two field lines, or two values in one, are refused, even when they are equal.
//! 4. Keys are compared byte for byte. Space around a field value is trimmed; inside the quotes it counts.
//! 5. Empty and blank keys are refused, never treated as missing.
//!
//! No error and no `Debug` text shows a key.
//!
//! ```
//! use onlyonce::key::{Key, KeyRules};
//!
//! let rules = KeyRules::default();
//! let quoted = Key::from_field_lines([&b"\"order-17\""[..]], &rules)?;
//! let bare = Key::from_field_lines([&b"order-17"[..]], &rules)?;
//! assert_eq!(quoted, bare);
//! assert_eq!(Key::from_field_lines([], &rules)?, None);
//! # Ok::<(), onlyonce::key::KeyError>(())
//! ```

mod field;
mod find;
mod rules;
mod source;

use std::fmt;

pub use find::find;
#[cfg(feature = "tower")]
pub(crate) use find::form_value;
pub(crate) use rules::KEY_BYTES_MAX;
pub use rules::{KeyFormat, KeyRules, KeySyntax};
pub use source::{KeySource, KeySourceError};

use crate::planted::{Planted, planted};

/// A caller's key: printable ASCII, not blank, within the rules it was read by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// The key of these field values, each as sent. `None` if there is no line at all.
    ///
    /// More than one line, or a comma-merged pair in one, is an error.
    pub fn from_field_lines<'a>(
        lines: impl IntoIterator<Item = &'a [u8]>,
        rules: &KeyRules,
    ) -> Result<Option<Self>, KeyError> {
        let mut lines = lines.into_iter();
        match (lines.next(), lines.next()) {
            (None, _) => Ok(None),
            (Some(_), Some(_)) if !planted(Planted::DoubledKeyTaken) => Err(KeyError::Several),
            (Some(line), _) => {
                Self::from_text(&field::decode(line, rules.syntax)?, rules).map(Some)
            }
        }
    }

    /// The key with this text, taken as it is: from a payload, a query, a form or a library caller.
    ///
    /// ```
    /// use onlyonce::key::{Key, KeyError, KeyRules};
    ///
    /// assert_eq!(Key::from_text("po 1", &KeyRules::default())?.as_str(), "po 1");
    /// assert_eq!(Key::from_text(" ", &KeyRules::default()), Err(KeyError::Empty));
    /// # Ok::<(), KeyError>(())
    /// ```
    pub fn from_text(text: &str, rules: &KeyRules) -> Result<Self, KeyError> {
        rules.check(text)?;
        Ok(Self(text.into()))
    }

    /// The key's text. Never log it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why a request has no usable key. Answer 400: the client has to send another key, or to send it otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Send the key once: in one field line, with one value.
    #[error("more than one key was sent")]
    Several,
    /// Send a key that has more in it than space, or none at all.
    #[error("the key is empty")]
    Empty,
    /// Send an RFC 9651 string: double quotes around printable ASCII, with `"` and `\` escaped by `\`.
    #[error("the key is not a valid quoted string of printable ASCII characters")]
    NotQuoted,
    /// Put the key in double quotes, or leave out what a bare key cannot have.
    #[error(
        "a key without quotes is visible ASCII without quotes, backslashes, commas and semicolons"
    )]
    NotBare,
    /// Send a key of printable ASCII characters.
    #[error("the key has characters other than printable ASCII")]
    NotPrintable,
    /// Send a key of a length within these bounds.
    #[error("the key is {length} characters long; it must have {min} to {max}")]
    Length {
        /// How long the decoded key was.
        length: usize,
        /// The shortest that is taken.
        min: usize,
        /// The longest that is taken.
        max: usize,
    },
    /// Send a key in the format that the route asks for.
    #[error("the key must have the format {0}")]
    Format(KeyFormat),
    /// Make a key for each operation: this one is a constant that the route refuses.
    #[error("the key is a well-known constant")]
    Denied,
    /// Send the same key in every place that has one, or in one place only.
    #[error("different keys were sent in different places of the request")]
    Disagreement,
    /// Send the key as a JSON string or number.
    #[error("the key in the body is neither a string nor a number")]
    NotText,
    /// Send the part of the request that has the key well-formed, and a body without a content coding.
    #[error("the part of the request that should have the key cannot be parsed")]
    Unreadable,
}

#[cfg(test)]
mod tests;
