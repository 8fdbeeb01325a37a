//! As much gzip as two spellings of one text need: stored blocks of a chosen size.

/// `text` in stored blocks of at most `block` bytes.
pub(crate) fn gzip(text: &[u8], block: u16) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut blocks = text.chunks(block.into()).peekable();
    while let Some(bytes) = blocks.next() {
        let length = u16::try_from(bytes.len()).unwrap();
        out.push(u8::from(blocks.peek().is_none()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(bytes);
    }
    out.extend(crc32(text).to_le_bytes());
    out.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
    out
}

/// What [`gzip`] was given.
pub(crate) fn gunzip(coded: &[u8]) -> Vec<u8> {
    let mut rest = &coded[10..];
    let mut text = Vec::new();
    loop {
        let is_last = rest[0] == 1;
        let length = usize::from(u16::from_le_bytes([rest[1], rest[2]]));
        text.extend(&rest[5..5 + length]);
        rest = &rest[5 + length..];
        if is_last {
            return text;
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[test]
fn two_spellings_of_one_text_are_both_it() {
    let text = b"{\"amount\":7998}";
    assert_ne!(gzip(text, 4), gzip(text, 100));
    assert_eq!(gunzip(&gzip(text, 4)), gunzip(&gzip(text, 100)));
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}
