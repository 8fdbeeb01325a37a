//! Strings, decoded.

use super::{Odd, Scanner};
use crate::hex;

/// What is between the tag and the end of a canonical string.
pub(super) fn content(canonical: &[u8]) -> &[u8] {
    &canonical[1..canonical.len() - 1]
}

impl Scanner<'_> {
    pub(super) fn string(&mut self) -> Result<(), Odd> {
        self.expect(b'"')?;
        self.out.push(b'"');
        loop {
            self.plain_run()?;
            match self.take()? {
                b'"' => break self.out.push(END),
                b'\\' => self.escape()?,
                _control => return Err(Odd),
            }
        }
        Ok(())
    }

    /// Copies everything up to the next quote, backslash or control character.
    fn plain_run(&mut self) -> Result<(), Odd> {
        let rest = &self.body[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).ok_or(Odd)?;
        self.out.extend_from_slice(&rest[..end]);
        self.at += end;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Odd> {
        let character = match self.take()? {
            same @ (b'"' | b'\\' | b'/') => char::from(same),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.unicode()?,
            _ => return Err(Odd),
        };
        self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// A lone surrogate is no character.
    fn unicode(&mut self) -> Result<char, Odd> {
        let first = self.code_unit()?;
        if !matches!(first, 0xD800..0xDC00) {
            return char::from_u32(first.into()).ok_or(Odd);
        }
        self.expect(b'\\')?;
        self.expect(b'u')?;
        let units = [first, self.code_unit()?];
        char::decode_utf16(units).next().and_then(Result::ok).ok_or(Odd)
    }

    fn code_unit(&mut self) -> Result<u16, Odd> {
        let [one, two, three, four] = [self.take()?, self.take()?, self.take()?, self.take()?];
        let bytes = [hex::pair(one, two).ok_or(Odd)?, hex::pair(three, four).ok_or(Odd)?];
        Ok(u16::from_be_bytes(bytes))
    }

    fn take(&mut self) -> Result<u8, Odd> {
        let byte = self.body.get(self.at).ok_or(Odd)?;
        self.at += 1;
        Ok(*byte)
    }
}

/// No byte of UTF-8, so that it can only be the end.
const END: u8 = 0xFF;
