//! Operations as a table for people.

use onlyonce::clock::{Clock, SystemClock};
use serde_json::Value;

use crate::words::{plain, span};

/// Aligned columns, with a line of heads.
pub(super) fn of(operations: &[Value]) -> String {
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(operations.iter().map(row));
    let widths: Vec<_> = (0..HEADS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn row(operation: &Value) -> [String; 7] {
    let text = |name: &str| plain(operation[name].as_str().unwrap_or_default());
    let number =
        |name: &str| operation[name].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string());
    let since =
        operation["unknown_since"].as_str().or_else(|| operation["first_claimed_at"].as_str());
    [
        text("state"),
        since.map_or_else(|| "-".to_owned(), age),
        number("attempt"),
        number("status"),
        text("route"),
        text("key"),
        text("id"),
    ]
}

/// How long ago a moment was.
pub(super) fn age(at: &str) -> String {
    moment_ms(at).map_or_else(|| "-".to_owned(), |ms| span(SystemClock.wall().as_ms() - ms))
}

/// Milliseconds since 1970 of an RFC 3339 time as the API writes it.
fn moment_ms(at: &str) -> Option<i64> {
    let number = |from: usize, to: usize| at.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, ms) =
        (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 23)?);
    // Years are counted from March, so that the leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days - DAYS_BEFORE_1970;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + ms)
}

/// From the first of March of the year 0.
const DAYS_BEFORE_1970: i64 = 719_468;
const HEADS: [&str; 7] = ["STATE", "AGE", "ATTEMPT", "STATUS", "ROUTE", "KEY", "ID"];

#[cfg(test)]
mod tests {
    use onlyonce::clock::StoreTime;
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_a_key_cannot_move_the_cursor() {
        let operation = |key: &str| json!({"state": "unknown", "attempt": 1, "route": "POST /a", "key": key, "id": "ab"});
        let table = of(&[operation("short"), operation("\u{1b}[2Jlonger")]);
        let lines: Vec<_> = table.lines().collect();
        assert!(!table.contains('\u{1b}'));
        let at = |line: &str, text: &str| line.find(text).unwrap();
        assert_eq!(at(lines[1], "ab"), at(lines[2], "ab"));
        assert_eq!(at(lines[0], "ID"), at(lines[1], "ab"));
    }

    #[test]
    fn a_moment_comes_back_from_its_text() {
        for ms in [0, 951_782_400_000, 1_709_251_199_999, 4_107_542_400_000, 1_794_924_127_123] {
            assert_eq!(moment_ms(&StoreTime::from_ms(ms).rfc3339()), Some(ms));
        }
        assert_eq!(moment_ms("yesterday"), None);
    }
}
