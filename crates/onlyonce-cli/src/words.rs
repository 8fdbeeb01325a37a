//! Numbers and texts as people read them.

/// A time that has passed: `3 m 12 s`. Two units at most.
pub(crate) fn span(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes, seconds) {
        (0, 0, 0, 0) => format!("{} ms", ms.max(0)),
        (0, 0, 0, _) => format!("{seconds} s"),
        (0, 0, _, _) => format!("{minutes} m {seconds} s"),
        (0, _, _, _) => format!("{hours} h {minutes} m"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A text for a terminal: what would move the cursor or change the direction of writing is spelt out.
pub(crate) fn plain(text: &str) -> String {
    text.chars().fold(String::new(), |mut plain, character| {
        match character.is_control() || is_hidden(character) {
            true => plain.extend(character.escape_unicode()),
            false => plain.push(character),
        }
        plain
    })
}

/// Characters that show nothing and change how others are shown.
fn is_hidden(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_two_units_at_most() {
        let spans = [0, 999, 1_000, 59_999, 192_000, 3_600_000, 90_061_000].map(span);
        assert_eq!(spans, ["0 ms", "999 ms", "1 s", "59 s", "3 m 12 s", "1 h 0 m", "1 d 1 h"]);
        assert_eq!(span(-5), "0 ms");
    }

    #[test]
    fn what_moves_the_cursor_is_spelt_out() {
        assert_eq!(plain("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\u{d}\\u{a}");
        assert_eq!(plain("order-1 é"), "order-1 é");
        assert_eq!(plain("\u{202e}evil"), "\\u{202e}evil");
    }
}
