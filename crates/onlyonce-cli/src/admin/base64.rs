//! Bytes that are no text, for JSON.

/// As RFC 4648 says, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.chunks(3).flat_map(group).collect()
}

fn group(bytes: &[u8]) -> [char; 4] {
    let at = |index: usize| u32::from(bytes.get(index).copied().unwrap_or_default());
    let bits = at(0) << 16 | at(1) << 8 | at(2);
    let digit = |index: usize| match index <= bytes.len() {
        true => char::from(DIGITS[(bits >> (18 - 6 * index) & 63) as usize]),
        false => '=',
    };
    [digit(0), digit(1), digit(2), digit(3)]
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    // The examples of RFC 4648, section 10.
    #[test]
    fn it_is_as_the_standard_says() {
        let encoded = ["", "f", "fo", "foo", "foob", "fooba", "foobar"]
            .map(|text| super::encode(text.as_bytes()));
        assert_eq!(encoded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(super::encode(&[0xff, 0xfe]), "//4=");
    }
}
