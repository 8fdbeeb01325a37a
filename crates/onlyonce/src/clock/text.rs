//! Times as text.

use super::StoreTime;

/// A moment as RFC 3339 writes it, in UTC: `2026-11-16T01:02:03.004Z`. Years past 9999 are cut to it.
pub(super) fn rfc3339(at: StoreTime) -> String {
    let ms = at.as_ms().clamp(0, LAST_MS);
    let (days, ms) = (ms / DAY_MS, ms % DAY_MS);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// Year, month and day of this many days after the start of 1970. Years are counted from March, so that the leap day
/// comes last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * era + year + later, month, day)
}

const DAY_MS: i64 = 86_400_000;
/// From the first of March of the year 0.
const DAYS_BEFORE_1970: i64 = 719_468;
/// 400 years.
const ERA_DAYS: i64 = 146_097;
/// The last millisecond of the year 9999.
const LAST_MS: i64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc_3339() {
        let text = |ms| rfc3339(StoreTime::from_ms(ms));
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(784_111_777_004), "1994-11-06T08:49:37.004Z");
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(1_709_251_199_999), "2024-02-29T23:59:59.999Z");
        assert_eq!(text(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert_eq!(text(i64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(text(-1), "1970-01-01T00:00:00.000Z");
    }
}
