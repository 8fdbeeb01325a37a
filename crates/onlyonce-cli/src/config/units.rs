//! Durations and sizes as people write them: one number, one unit.
//!
//! Ours because the crates for it take more than we want in a file that decides about money: `1M` is a month
//! to one and a megabyte to another.

use std::time::Duration;

/// Reads `500ms`, `5s`, `15m`, `24h` or `30d`.
pub(crate) fn duration(text: &str) -> Result<Duration, UnitError> {
    let ms = scaled(text, &DURATIONS, MS_MAX).map_err(|wrong| match wrong {
        Wrong::Shape => UnitError::Duration,
        Wrong::TooMuch => UnitError::TooLong,
    })?;
    Ok(Duration::from_millis(ms))
}

/// Reads `300B`, `256KiB`, `1MiB` or `4GiB`.
pub(crate) fn bytes(text: &str) -> Result<usize, UnitError> {
    let bytes = scaled(text, &SIZES, BYTES_MAX).map_err(|wrong| match wrong {
        Wrong::Shape => UnitError::Size,
        Wrong::TooMuch => UnitError::TooLarge,
    })?;
    usize::try_from(bytes).map_err(|_| UnitError::TooLarge)
}

/// What texts that are durations look like, as a regular expression.
pub(crate) fn duration_pattern(is_above_zero: bool) -> String {
    pattern(&DURATIONS, is_above_zero)
}

/// What texts that are sizes look like, as a regular expression.
pub(crate) fn bytes_pattern(is_above_zero: bool) -> String {
    pattern(&SIZES, is_above_zero)
}

fn pattern(units: &[(&str, u64)], is_above_zero: bool) -> String {
    let number = if is_above_zero { "0*[1-9][0-9]*" } else { "[0-9]+" };
    let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
    format!("^{number}\\s*({})$", names.join("|"))
}

/// Why a text is no duration or size. Write it as the message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnitError {
    #[error("a duration is a whole number and one of ms, s, m, h, d, such as \"90s\"")]
    Duration,
    #[error("a duration is at most ten years, \"3650d\"")]
    TooLong,
    #[error("a size is a whole number and one of B, KiB, MiB, GiB, such as \"512KiB\"")]
    Size,
    #[error("a size is at most \"1024GiB\"")]
    TooLarge,
}

fn scaled(text: &str, units: &[(&str, u64)], max: u64) -> Result<u64, Wrong> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale = units.iter().find(|(name, _)| *name == unit.trim_start());
    let (_, scale) = scale.filter(|_| digits > 0).ok_or(Wrong::Shape)?;
    // Digits alone fail to parse only because they are too many.
    let number: u64 = number.parse().map_err(|_| Wrong::TooMuch)?;
    let value = number.checked_mul(*scale).filter(|value| *value <= max);
    value.ok_or(Wrong::TooMuch)
}

enum Wrong {
    Shape,
    TooMuch,
}

const SECOND: u64 = 1000;
const DAY: u64 = 24 * 60 * 60 * SECOND;
const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", SECOND), ("m", 60 * SECOND), ("h", 60 * 60 * SECOND), ("d", DAY)];
const MS_MAX: u64 = 3650 * DAY;

const GIB: u64 = 1 << 30;
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", GIB)];
const BYTES_MAX: u64 = 1024 * GIB;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        let cases = [
            ("500ms", 500),
            ("5s", 5_000),
            ("15m", 900_000),
            ("24h", 86_400_000),
            ("30d", 2_592_000_000),
            ("0s", 0),
            ("5 s", 5_000),
        ];
        for (text, ms) in cases {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "s", "5M", "-5s", "1.5h", "1h30m", "+5s", " 5s", "5s ", "٣s"] {
            assert_eq!(duration(text), Err(UnitError::Duration), "{text}");
        }
        for text in ["3651d", "99999999999999999999s", "18446744073709551615d"] {
            assert_eq!(duration(text), Err(UnitError::TooLong), "{text}");
        }
    }

    #[test]
    fn sizes_are_a_number_and_a_binary_unit() {
        let cases = [("300B", 300), ("256KiB", 256 << 10), ("1MiB", 1 << 20), ("4GiB", 4 << 30)];
        for (text, size) in cases {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "1", "MiB", "1MB", "1M", "1mib", "1.5MiB"] {
            assert_eq!(bytes(text), Err(UnitError::Size), "{text}");
        }
        assert_eq!(bytes("1025GiB"), Err(UnitError::TooLarge));
    }
}
