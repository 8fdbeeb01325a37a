//! By when a client needs its answer, as a header of its request says.
//!
//! 1. A header has one of three forms, told apart by their text: a moment of RFC 3339
//!    (`X-Request-Deadline: 2026-11-17T10:00:00Z`), seconds from now (`Request-Timeout: 2.5`), or what gRPC sends, up to
//!    eight digits and a unit (`grpc-timeout: 500m`).
//! 2. Of several headers the earliest deadline counts. A header that has none of these forms is ignored.
//! 3. Inner services are told what is left: a relative header is written anew, a moment stays as it is.
//!
//! A moment is compared with the clock of this node. A client whose clock is behind asks for answers by a moment that has
//! passed here: turn the header off for such clients with [`Policy::with_deadline_from`](crate::Policy::with_deadline_from).

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::clock::StoreTime;

/// How long the answer is still of use to the client; `None` if the headers of these names do not say.
pub(super) fn left(names: &[HeaderName], headers: &HeaderMap, wall: StoreTime) -> Option<Duration> {
    let values = names.iter().flat_map(|name| headers.get_all(name));
    values.filter_map(|value| Some(Form::read(value)?.left(wall))).min()
}

/// Writes what is left into the headers that say it relatively.
pub(super) fn pass_on(names: &[HeaderName], headers: &mut HeaderMap, left: Duration) {
    for name in names {
        let form = headers.get(name).and_then(Form::read);
        if let Some(value) = form.and_then(|form| form.write(left)) {
            headers.insert(name, value);
        }
    }
}

/// What one header says.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    At(StoreTime),
    Seconds(Duration),
    Grpc(Duration),
}

impl Form {
    fn read(value: &HeaderValue) -> Option<Self> {
        let text = value.to_str().ok()?.trim();
        let seconds = || Some(Self::Seconds(Duration::try_from_secs_f64(text.parse().ok()?).ok()?));
        let moment = || StoreTime::from_rfc3339(text).map(Self::At);
        grpc(text).map(Self::Grpc).or_else(seconds).or_else(moment)
    }

    fn left(self, wall: StoreTime) -> Duration {
        match self {
            Self::At(at) => Duration::from_millis(u64::try_from(at.since_ms(wall)).unwrap_or(0)),
            Self::Seconds(left) | Self::Grpc(left) => left,
        }
    }

    /// The header for an inner service, unless it can stay as it is.
    fn write(self, left: Duration) -> Option<HeaderValue> {
        let text = match self {
            Self::At(_) => return None,
            Self::Seconds(_) => format!("{:.3}", left.as_secs_f64()),
            Self::Grpc(_) if left.as_millis() <= GRPC_NUMBER_MAX => {
                format!("{}m", left.as_millis())
            }
            Self::Grpc(_) => format!("{}S", u128::from(left.as_secs()).min(GRPC_NUMBER_MAX)),
        };
        text.try_into().ok()
    }
}

/// A number of at most eight digits, and its unit.
fn grpc(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    let is_number =
        (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    match unit {
        'H' => Some(Duration::from_secs(number * 3_600)),
        'M' => Some(Duration::from_secs(number * 60)),
        'S' => Some(Duration::from_secs(number)),
        'm' => Some(Duration::from_millis(number)),
        'u' => Some(Duration::from_micros(number)),
        'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// The largest number that gRPC takes.
const GRPC_NUMBER_MAX: u128 = 99_999_999;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::DEADLINE_FROM as NAMES;

    const NOW: StoreTime = StoreTime::from_ms(784_111_777_000);

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        fields.collect()
    }

    fn left_of(name: &'static str, value: &'static str) -> Option<Duration> {
        left(&NAMES, &headers(&[(name, value)]), NOW)
    }

    // R172
    #[test]
    fn a_deadline_has_three_forms() {
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(left_of("x-request-deadline", "1994-11-06T08:49:39.500Z"), ms(2_500));
        assert_eq!(left_of("x-request-deadline", "1994-11-06T09:49:38+01:00"), ms(1_000));
        assert_eq!(left_of("request-timeout", "2.5"), ms(2_500));
        assert_eq!(left_of("request-timeout", "30"), ms(30_000));
        assert_eq!(left_of("grpc-timeout", "500m"), ms(500));
        assert_eq!(left_of("grpc-timeout", "2S"), ms(2_000));
        assert_eq!(left_of("grpc-timeout", "1H"), ms(3_600_000));
        assert_eq!(left_of("grpc-timeout", "99999999n"), Some(Duration::from_nanos(99_999_999)));
    }

    #[test]
    fn what_has_passed_leaves_nothing() {
        assert_eq!(left_of("x-request-deadline", "1994-11-06T08:49:36Z"), Some(Duration::ZERO));
        assert_eq!(left_of("request-timeout", "0"), Some(Duration::ZERO));
    }

    #[test]
    fn what_cannot_be_read_is_no_deadline() {
        for text in ["", "soon", "-1", "NaN", "inf", "123456789m", "5d", "1994-11-06", "1e400"] {
            assert_eq!(left_of("request-timeout", text), None, "{text:?}");
        }
        assert_eq!(left(&[], &headers(&[("request-timeout", "1")]), NOW), None);
    }

    #[test]
    fn the_earliest_deadline_counts() {
        let both = headers(&[("request-timeout", "9"), ("grpc-timeout", "3S")]);
        assert_eq!(left(&NAMES, &both, NOW), Some(Duration::from_secs(3)));
    }

    // R175
    #[test]
    fn what_is_left_is_passed_on_in_the_form_it_came_in() {
        let mut fields = headers(&[
            ("x-request-deadline", "1994-11-06T08:49:39.500Z"),
            ("request-timeout", "9"),
            ("grpc-timeout", "9S"),
        ]);
        pass_on(&NAMES, &mut fields, Duration::from_millis(1_234));
        assert_eq!(fields["x-request-deadline"], "1994-11-06T08:49:39.500Z");
        assert_eq!(fields["request-timeout"], "1.234");
        assert_eq!(fields["grpc-timeout"], "1234m");
        pass_on(&NAMES, &mut fields, Duration::from_secs(200_000));
        assert_eq!(fields["grpc-timeout"], "200000S");
    }
}
