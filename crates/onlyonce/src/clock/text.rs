//! Times as text.

use jiff::Timestamp;

use super::StoreTime;

/// A moment as RFC 3339 writes it, in UTC: `2026-11-16T01:02:03.004Z`. What is later than the
/// year 9999 is cut to its end.
pub(super) fn rfc3339(at: StoreTime) -> String {
    let moment = Timestamp::from_millisecond(at.as_ms().max(0)).unwrap_or(Timestamp::MAX);
    format!("{moment:.3}")
}

/// The moment that RFC 3339 writes so, with any offset.
pub(super) fn read(text: &str) -> Option<StoreTime> {
    let moment: Timestamp = text.parse().ok()?;
    Some(StoreTime::from_ms(moment.as_millisecond()))
}

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
        assert_eq!(text(i64::MAX), "9999-12-30T22:00:00.999Z");
        assert_eq!(text(-1), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn moments_are_read_with_any_offset() {
        let ms = |text| read(text).map(StoreTime::as_ms);
        assert_eq!(ms("1994-11-06T08:49:37.004Z"), Some(784_111_777_004));
        assert_eq!(ms("1994-11-06T10:49:37+02:00"), Some(784_111_777_000));
        assert_eq!(ms("1994-11-06T08:49:37"), None, "a moment has an offset");
        assert_eq!(ms("30"), None);
    }
}
