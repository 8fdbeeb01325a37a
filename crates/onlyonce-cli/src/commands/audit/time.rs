//! Moments as people write them on a command line.

use std::str::FromStr;
use std::time::Duration;

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

/// Milliseconds since 1970.
fn moment(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let [year, month, day] = numbers(date, '-')?;
    let time = time.strip_suffix('Z')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = match time.matches(':').count() {
        1 => numbers(&format!("{time}:0"), ':')?,
        _ => numbers(time, ':')?,
    };
    let is_right = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let ms = format!("{:0<3}", fraction.get(..fraction.len().min(3))?).parse::<i64>().ok()?;
    let days =
        days_before(year) + (1..month).map(|month| days_of(year, month)).sum::<i64>() + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    is_right.then_some(seconds * 1_000 + ms)
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Option<Vec<i64>> =
        text.split(between).map(|part| part.parse().ok().filter(|_| digits(part))).collect();
    parts?.try_into().ok()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to the beginning of a year.
fn days_before(year: i64) -> i64 {
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
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
