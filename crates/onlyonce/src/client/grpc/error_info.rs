//! `google.rpc.ErrorInfo` in the details of a gRPC status, read from the wire format of Protocol Buffers.

use crate::code::Retry;

/// The reason of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorInfo {
    pub(super) reason: String,
    pub(super) domain: String,
    /// The entry `retry` of its metadata.
    pub(super) retry: Option<Retry>,
}

impl ErrorInfo {
    /// The first one among the details of a `google.rpc.Status`.
    pub(super) fn in_status(status: &[u8]) -> Option<Self> {
        let mut details = Fields(status).filter(|(number, _)| *number == 3);
        details.find_map(|(_, any)| {
            let name = text(last(any, 1)?);
            name.ends_with("/google.rpc.ErrorInfo").then(|| Self::of(last(any, 2).unwrap_or(&[])))
        })
    }

    fn of(message: &[u8]) -> Self {
        let mut info = Self::default();
        for (number, bytes) in Fields(message) {
            match number {
                1 => info.reason = text(bytes),
                2 => info.domain = text(bytes),
                3 if last(bytes, 1) == Some(b"retry") => {
                    info.retry = last(bytes, 2).and_then(|retry| Retry::from_text(&text(retry)));
                }
                _ => {}
            }
        }
        info
    }
}

/// A field that occurs once: as Protocol Buffers have it, the last one counts.
fn last(message: &[u8], number: u64) -> Option<&[u8]> {
    Fields(message).filter(|(found, _)| *found == number).map(|(_, bytes)| bytes).last()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The fields of a message that are bytes, each with its number, up to the first that cannot be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // Each turn takes at least one byte.
        while !self.0.is_empty() {
            let tag = self.varint()?;
            match tag & 7 {
                0 => {
                    self.varint()?;
                }
                1 => {
                    self.bytes(8)?;
                }
                2 => {
                    let length = usize::try_from(self.varint()?).ok()?;
                    return Some((tag >> 3, self.bytes(length)?));
                }
                5 => {
                    self.bytes(4)?;
                }
                _ => return None,
            }
        }
        None
    }
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_message_have_no_info() {
        for bytes in [
            &b""[..],
            b"\x1a",
            b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x07",
            b"\x1a\x7f1",
        ] {
            assert_eq!(ErrorInfo::in_status(bytes), None, "{bytes:?}");
        }
    }
}
