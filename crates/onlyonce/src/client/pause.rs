//! How long a server asks to wait: `Retry-After`, `grpc-retry-pushback-ms`.

use std::time::Duration;

use http::HeaderName;
use http::header::RETRY_AFTER;

use super::answer::Answer;
use crate::clock::StoreTime;

/// What a server says about the wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The server says nothing: the client's own backoff.
    Backoff,
    /// Wait at least so long.
    AtLeast(Duration),
    /// Wait exactly so long.
    Exactly(Duration),
    /// Make no further attempt.
    Never,
}

impl Pause {
    /// Pushback counts before `Retry-After`; a pushback that is negative or no number means: stop.
    pub(crate) fn of(answer: &Answer, now: StoreTime) -> Self {
        match answer.headers.get(PUSHBACK) {
            Some(value) => {
                value.to_str().ok().and_then(pushback).map_or(Self::Never, Self::Exactly)
            }
            None => retry_after(answer, now).map_or(Self::Backoff, Self::AtLeast),
        }
    }
}

fn pushback(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_millis)
}

/// Seconds, or a date. Any other text is ignored; a date in the past means no wait.
fn retry_after(answer: &Answer, now: StoreTime) -> Option<Duration> {
    let text = answer.header(&RETRY_AFTER)?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let at = date.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = Duration::from_millis(now.as_ms().max(0).unsigned_abs());
    Some(at.saturating_sub(now))
}

const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode};

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: StoreTime = StoreTime::from_ms(784_111_777_000);

    fn of(headers: &[(&'static str, &'static str)]) -> Pause {
        let mut answer = Answer::new(StatusCode::SERVICE_UNAVAILABLE);
        for (name, value) in headers {
            answer.headers.insert(*name, HeaderValue::from_static(value));
        }
        Pause::of(&answer, NOW)
    }

    // R155
    #[test]
    fn retry_after_is_read_in_both_forms() {
        let seconds = Duration::from_secs;
        assert_eq!(of(&[("retry-after", "120")]), Pause::AtLeast(seconds(120)));
        let date = [("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")];
        assert_eq!(of(&date), Pause::AtLeast(seconds(60)));
        let past = [("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")];
        assert_eq!(of(&past), Pause::AtLeast(Duration::ZERO));
        assert_eq!(of(&[("retry-after", "soon")]), Pause::Backoff);
        assert_eq!(of(&[("retry-after", "-1")]), Pause::Backoff);
        assert_eq!(of(&[]), Pause::Backoff);
    }

    // R155
    #[test]
    fn pushback_is_obeyed_to_the_millisecond_and_stops_where_it_is_negative_or_no_number() {
        let name = "grpc-retry-pushback-ms";
        assert_eq!(of(&[(name, "250")]), Pause::Exactly(Duration::from_millis(250)));
        assert_eq!(of(&[(name, "0")]), Pause::Exactly(Duration::ZERO));
        for stop in ["-1", "soon", "", "1.5"] {
            assert_eq!(of(&[(name, stop)]), Pause::Never, "{stop}");
        }
        assert_eq!(of(&[(name, "-1"), ("retry-after", "1")]), Pause::Never);
    }
}
