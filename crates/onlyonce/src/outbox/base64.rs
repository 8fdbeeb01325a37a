//! Base64 with the standard alphabet (RFC 4648, section 4).

/// With padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let group = |chunk: &[u8]| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        [18, 12, 6, 0].map(|shift| char::from(ALPHABET[(bits >> shift & 63) as usize]))
    };
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        text.extend(&group(chunk)[..=chunk.len()]);
        text.extend(std::iter::repeat_n('=', 3 - chunk.len()));
    }
    text
}

/// With or without padding; `None` if it is not base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_padded = digits.len() < text.len();
    if digits.len() % 4 == 1 || is_padded && !text.len().is_multiple_of(4) {
        return None;
    }
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(digits.len()), 0_u32, 0_u32);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 255) as u8);
        }
    }
    Some(bytes)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4648, section 10
    #[test]
    fn the_texts_of_the_rfc_are_written_and_read() {
        let known = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in known {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
            assert_eq!(decode(text.trim_end_matches('=')).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["Z", "Zg=", "Zm9v=", "Zg===", "Z-==", "Zm 9v", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
