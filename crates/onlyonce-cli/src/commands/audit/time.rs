//! Moments as people write them on a command line.

use std::str::FromStr;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use onlyonce::clock::{StoreTime, as_ms};

use crate::config::units;

/// A day, a moment of it, or how long ago. In UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(StoreTime),
    Ago(Duration),
}

impl Moment {
    pub(crate) fn at(self, now: StoreTime) -> StoreTime {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.plus_ms(-as_ms(ago)),
        }
    }
}

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        if let Ok(ago) = units::duration(text) {
            return Ok(Self::Ago(ago));
        }
        moment(text).map(|ms| Self::At(StoreTime::from_ms(ms))).ok_or(MomentError)
    }
}

/// Write it in one of these ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a time is 2026-11-17, 2026-11-17T14:02:07Z (in UTC), or 24h for that long ago")]
pub(crate) struct MomentError;

/// Milliseconds since 1970 of a moment, or of the beginning of a day.
fn moment(text: &str) -> Option<i64> {
    if text.contains('T') {
        return StoreTime::from_rfc3339(text).map(StoreTime::as_ms);
    }
    let day: Date = text.parse().ok()?;
    Some(day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_days_times_and_how_long_ago() {
        for ms in [0, 86_399_999, 951_782_400_000, 1_793_800_000_123, 4_102_444_800_000] {
            let text = StoreTime::from_ms(ms).rfc3339();
            assert_eq!(text.parse(), Ok(Moment::At(StoreTime::from_ms(ms))), "{text}");
        }
        assert_eq!("2000-03-01".parse(), "2000-03-01T00:00Z".parse::<Moment>());
        assert_eq!("90m".parse(), Ok(Moment::Ago(Duration::from_secs(5_400))));
        let wrong = [
            "",
            "yesterday",
            "2026-13-01",
            "2026-02-29",
            "2026-11-17T14:02:07",
            "2026-1-1T25:00Z",
            "-1-1-1",
        ];
        for text in wrong {
            assert_eq!(text.parse::<Moment>(), Err(MomentError), "{text}");
        }
    }
}
