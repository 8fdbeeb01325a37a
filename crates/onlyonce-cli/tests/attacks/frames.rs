//! Frames of HTTP/2 by hand, so that they may say what no library says.

/// What a connection begins with: RFC 9113 section 3.4, and settings that change nothing.
pub(crate) fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &[])[..]].concat()
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Fields as literals without an index and without compression: RFC 7541 section 6.2.2.
pub(crate) fn fields(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_bytes(), value] {
            put_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// An integer with a prefix of seven bits: RFC 7541 section 5.1.
fn put_length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        return block.push(length as u8);
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
