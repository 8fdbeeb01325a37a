//! JSON pointers (RFC 6901): where in a document a value is.

use std::fmt;
use std::str::FromStr;

/// A place in a JSON document, such as `/transfer/client_reference` or `/items/0`.
///
/// ```
/// use onlyonce::fingerprint::Pointer;
///
/// let pointer: Pointer = "/meta/a~1b".parse()?;
/// assert_eq!(pointer.tokens().collect::<Vec<_>>(), ["meta", "a/b"]);
/// assert_eq!(pointer.to_string(), "/meta/a~1b");
/// # Ok::<(), onlyonce::fingerprint::PointerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pointer(Box<[Box<str>]>);

impl Pointer {
    /// The names and indices on the way, unescaped. None for the whole document.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|token| &**token)
    }

    /// The token at this depth; `None` where the pointer has ended.
    pub(crate) fn token(&self, depth: usize) -> Option<&str> {
        self.0.get(depth).map(|token| &**token)
    }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Ok(Self(Box::default()));
        }
        let tokens = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
        tokens.split('/').map(unescaped).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens()
            .try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

/// Why a text is no JSON pointer. Correct the configuration that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointerError {
    /// Only the empty pointer, the whole document, has no slash. Write `/name`.
    #[error("a JSON pointer begins with a slash")]
    NoSlash,
    /// Write `~0` for a tilde in a name, and `~1` for a slash.
    #[error("a tilde in a JSON pointer is followed by 0 or 1")]
    Tilde,
}

fn unescaped(token: &str) -> Result<Box<str>, PointerError> {
    let mut pieces = token.split('~');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (character, rest) = match piece.split_at_checked(1) {
            Some(("0", rest)) => ('~', rest),
            Some(("1", rest)) => ('/', rest),
            _ => return Err(PointerError::Tilde),
        };
        text.push(character);
        text.push_str(rest);
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // R17, R41: the examples of RFC 6901, section 5.
    #[test]
    fn pointers_of_the_rfc_are_read_and_written_back() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("/foo/0", &["foo", "0"]),
            ("/", &[""]),
            ("/a~1b", &["a/b"]),
            ("/m~0n", &["m~n"]),
            ("/~01", &["~1"]),
            ("/k\"l/ ", &["k\"l", " "]),
            ("//é", &["", "é"]),
        ];
        for (text, tokens) in cases {
            let pointer: Pointer = text.parse().unwrap();
            assert_eq!(pointer.tokens().collect::<Vec<_>>(), tokens, "{text}");
            assert_eq!(pointer.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        let cases = [
            ("foo", PointerError::NoSlash),
            ("#/foo", PointerError::NoSlash),
            ("/~", PointerError::Tilde),
            ("/a~2", PointerError::Tilde),
            ("/~é", PointerError::Tilde),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Pointer>(), Err(error), "{text}");
        }
    }
}
