//! The text of a key in a header field value.

use std::borrow::Cow;

use sfv::{BareItem, Item, Parser};

use super::{KeyError, KeySyntax};

/// The key that one field value carries, its quotes decoded.
pub(super) fn decode(line: &[u8], syntax: KeySyntax) -> Result<Cow<'_, str>, KeyError> {
    match trimmed(line) {
        [] => Err(KeyError::Empty),
        value @ [b'"', ..] => quoted(value).map(Cow::Owned),
        value if syntax == KeySyntax::Lenient => bare(value).map(Cow::Borrowed),
        _ => Err(KeyError::NotQuoted),
    }
}

fn quoted(value: &[u8]) -> Result<String, KeyError> {
    let item: Item = Parser::new(value).parse().map_err(|_| KeyError::NotQuoted)?;
    match item.bare_item {
        BareItem::String(text) => Ok(text.into()),
        _ => Err(KeyError::NotQuoted),
    }
}

fn bare(value: &[u8]) -> Result<&str, KeyError> {
    let text = str::from_utf8(value).map_err(|_| KeyError::NotPrintable)?;
    match value.iter().all(|byte| is_bare(*byte)) {
        true => Ok(text),
        // A comma says that a proxy merged two lines, or cannot be told from that.
        false if value.contains(&b',') => Err(KeyError::Several),
        false => Err(KeyError::NotBare),
    }
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';')
}

/// Without the optional whitespace of RFC 9110, section 5.6.3, which is space and tab only.
fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}
