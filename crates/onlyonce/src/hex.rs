//! Bytes as lower-case hexadecimal text, and back.

/// Two lower-case digits for each byte.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// 16 bytes as a UUID is written.
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub(crate) fn uuid_text(bytes: [u8; 16]) -> String {
    let digits = encode(&bytes);
    let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    groups.join("-")
}

/// Exactly `N` bytes from `2 * N` digits of either case, else `None`.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let pairs = text.as_bytes().chunks_exact(2);
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        *byte = self::pair(pair[0], pair[1])?;
    }
    Some(bytes)
}

/// The byte that two hexadecimal digits spell.
pub(crate) fn pair(high: u8, low: u8) -> Option<u8> {
    Some(value(high)? << 4 | value(low)?)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn digit(nibble: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(nibble)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_text() {
        let bytes: [u8; 4] = [0x00, 0x9f, 0xa0, 0xff];
        assert_eq!(encode(&bytes), "009fa0ff");
        assert_eq!(decode("009FA0ff"), Some(bytes));
    }

    #[test]
    fn text_of_another_length_or_with_other_characters_is_refused() {
        for text in ["", "00", "000", "0000000", "0g", "+0", "é"] {
            assert_eq!(decode::<2>(text), None, "{text}");
        }
    }
}
