//! Numbers as exact decimals: the digits from the first to the last that is not zero, and a power of ten.

use super::{Odd, Scanner};

impl<'a> Scanner<'a> {
    pub(super) fn number(&mut self) -> Result<(), Odd> {
        let is_negative = self.eat(b'-');
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            return Err(Odd);
        }
        let fraction = if self.eat(b'.') { self.digits()? } else { &[] };
        let exponent = self.exponent()?;
        write(&mut self.out, is_negative, whole, fraction, exponent)
    }

    fn digits(&mut self) -> Result<&'a [u8], Odd> {
        let rest = &self.body[self.at..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += length;
        match length {
            0 => Err(Odd),
            _ => Ok(&rest[..length]),
        }
    }

    /// As it is written, with its sign; empty if there is none.
    fn exponent(&mut self) -> Result<&'a [u8], Odd> {
        if !self.eat(b'e') && !self.eat(b'E') {
            return Ok(&[]);
        }
        let start = self.at;
        let _sign = self.eat(b'-') || self.eat(b'+');
        self.digits()?;
        Ok(&self.body[start..self.at])
    }
}

fn write(
    out: &mut Vec<u8>,
    is_negative: bool,
    whole: &[u8],
    fraction: &[u8],
    exponent: &[u8],
) -> Result<(), Odd> {
    let (whole, fraction) = (without_leading_zeros(whole), without_trailing_zeros(fraction));
    out.push(b'#');
    if whole.is_empty() && fraction.is_empty() {
        out.push(b'0');
        return Ok(());
    }
    if is_negative {
        out.push(b'-');
    }
    let power = power_of(exponent, fraction.len())?;
    let dropped = write_digits(out, whole, fraction);
    write_power(out, power.checked_add(dropped).ok_or(Odd)?);
    Ok(())
}

/// Returns how many zeros at the end were dropped.
fn write_digits(out: &mut Vec<u8>, whole: &[u8], fraction: &[u8]) -> i64 {
    let digits = match (whole, fraction) {
        (_, []) => without_trailing_zeros(whole),
        _ => whole,
    };
    out.extend_from_slice(digits);
    out.extend_from_slice(if whole.is_empty() {
        without_leading_zeros(fraction)
    } else {
        fraction
    });
    (whole.len() - digits.len()) as i64
}

fn power_of(exponent: &[u8], places: usize) -> Result<i64, Odd> {
    let exponent = match exponent {
        [] => 0,
        _ => str::from_utf8(exponent).ok().and_then(|text| text.parse().ok()).ok_or(Odd)?,
    };
    i64::checked_sub(exponent, places as i64).ok_or(Odd)
}

/// Eight bytes after a letter that no digit is, or nothing for the power zero.
fn write_power(out: &mut Vec<u8>, power: i64) {
    if power != 0 {
        out.push(b'e');
        out.extend_from_slice(&power.to_be_bytes());
    }
}

fn without_leading_zeros(mut digits: &[u8]) -> &[u8] {
    while let [b'0', rest @ ..] = digits {
        digits = rest;
    }
    digits
}

fn without_trailing_zeros(mut digits: &[u8]) -> &[u8] {
    while let [rest @ .., b'0'] = digits {
        digits = rest;
    }
    digits
}
