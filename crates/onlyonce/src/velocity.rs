//! How often operations may be begun: by one caller, with one card, or for whatever else a rule names.
//!
//! 1. Only operations that are begun count. A replay, a mismatch and a wait for a running operation are free.
//! 2. A limit is a generic cell rate: `5/min` lets five begin at once, and then one every twelve seconds.
//! 3. An operation must be within every rule of its route, and counts in all of them or in none.
//!
//! ```
//! use onlyonce::Policy;
//! use onlyonce::velocity::{Rate, Velocity, VelocityPart};
//!
//! let card = VelocityPart::Json("/card".parse()?);
//! let rule = Velocity::new([VelocityPart::Principal, card], "5/min".parse::<Rate>()?);
//! let policy = Policy::payments().with_velocity([rule]);
//! # let _ = policy;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;

use crate::fingerprint::Pointer;

/// A rule: how often requests that are equal in some parts may begin operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Velocity {
    per: Vec<VelocityPart>,
    limit: Rate,
}

impl Velocity {
    /// Requests that are equal in all parts of `per` count together. Without a part, all requests of the route do.
    pub fn new(per: impl IntoIterator<Item = VelocityPart>, limit: Rate) -> Self {
        Self { per: per.into_iter().collect(), limit }
    }

    /// What requests must have in common to count together.
    pub fn per(&self) -> &[VelocityPart] {
        &self.per
    }

    /// How many of them may begin an operation.
    pub fn limit(&self) -> Rate {
        self.limit
    }
}

/// A part of a request that tells what it counts for. Requests that lack the part count together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VelocityPart {
    /// Who asks.
    Principal,
    /// All values of a header.
    Header(HeaderName),
    /// A text or a number of a JSON body. White space around it does not count, and a number is the same as its text:
    /// `"4242"`, `4242` and `" 4242"` are one. Every other value (a list, an object, `true`, `null`) counts as none.
    Json(Pointer),
    /// A field of a form, URL-encoded or multipart. Its spellings are those of a JSON value.
    Form(Box<str>),
}

impl FromStr for VelocityPart {
    type Err = VelocityError;

    fn from_str(text: &str) -> Result<Self, VelocityError> {
        let (place, name) = text.split_once(':').unwrap_or((text, ""));
        let part = match place {
            "principal" if text == place => Some(Self::Principal),
            "header" => name.parse().ok().map(Self::Header),
            "json" => name.parse().ok().map(Self::Json),
            "form" if !name.is_empty() => Some(Self::Form(name.into())),
            _ => None,
        };
        part.ok_or(VelocityError::Part)
    }
}

impl fmt::Display for VelocityPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal => f.write_str("principal"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Form(name) => write!(f, "form:{name}"),
        }
    }
}

/// So many in so long, such as `5/min`: so many at once, and then one each time that its part of the period has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    times: NonZeroU32,
    period: Duration,
}

impl Rate {
    /// `times` in each `period`, which is at least a microsecond for each of them, and at most 366 days.
    pub fn new(times: NonZeroU32, period: Duration) -> Self {
        let shortest = Duration::from_micros(times.get().into());
        Self { times, period: period.clamp(shortest, PERIOD_MAX.max(shortest)) }
    }

    fn every(self) -> Duration {
        self.period / self.times.get()
    }
}

/// `5/min`, `100/s`, `20/h`, `500/d`, or with a number of units: `3/10min`.
impl FromStr for Rate {
    type Err = VelocityError;

    fn from_str(text: &str) -> Result<Self, VelocityError> {
        let read = || {
            let (times, period) = text.split_once('/')?;
            let digits = period.bytes().take_while(u8::is_ascii_digit).count();
            let (count, unit) = period.split_at(digits);
            let count: u32 = if count.is_empty() { 1 } else { count.parse().ok()? };
            let (_, seconds) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
            let period = Duration::from_secs(seconds).checked_mul(count)?;
            (!period.is_zero() && period <= PERIOD_MAX)
                .then_some(Self::new(times.parse().ok()?, period))
        };
        read().ok_or(VelocityError::Rate)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.period.as_secs();
        let mut units = UNITS.into_iter().rev().filter(|(_, unit)| seconds.is_multiple_of(*unit));
        match units.next() {
            Some((name, unit)) if seconds == unit => write!(f, "{}/{name}", self.times),
            Some((name, unit)) => write!(f, "{}/{}{name}", self.times, seconds / unit),
            None => write!(f, "{}/{:?}", self.times, self.period),
        }
    }
}

/// Why a text is no rule. Correct the configuration that says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VelocityError {
    /// Write it like `5/min`.
    #[error("a limit is a number, a slash and s, min, h or d, such as 5/min or 3/10min")]
    Rate,
    /// Write a part of a request.
    #[error("a part is principal, header:NAME, json:/pointer or form:name")]
    Part,
}

/// One use of one limit, as a meter counts it: what is limited is a digest, so that a meter knows no card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    subject: [u8; 16],
    rate: Rate,
}

impl Allowance {
    /// A use of `rate` by whatever has this digest.
    pub const fn new(subject: [u8; 16], rate: Rate) -> Self {
        Self { subject, rate }
    }

    /// The digest of what is limited.
    pub const fn subject(&self) -> &[u8; 16] {
        &self.subject
    }

    /// After how long one more use is allowed.
    pub fn every(&self) -> Duration {
        self.rate.every()
    }

    /// How far ahead of the even pace the uses may be: the whole limit at once.
    pub fn burst(&self) -> Duration {
        self.rate.every() * self.rate.times.get()
    }

    /// The moment until which the limit is used after one use more; or how long to wait until that use is allowed.
    ///
    /// # Errors
    /// How long to wait.
    pub fn used(&self, until: Option<Duration>, now: Duration) -> Result<Duration, Duration> {
        let until = until.unwrap_or(now).max(now).saturating_add(self.every());
        let wait = until.saturating_sub(now.saturating_add(self.burst()));
        if wait.is_zero() { Ok(until) } else { Err(wait) }
    }
}

const UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 60 * 60), ("d", 24 * 60 * 60)];
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        for text in ["5/min", "100/s", "20/h", "500/d", "3/10min", "1/2d"] {
            assert_eq!(rate(text).to_string(), text);
        }
        assert_eq!(rate("5/60s"), rate("5/min"));
    }

    #[test]
    fn what_limits_nothing_or_everything_is_no_rate() {
        for text in ["", "5", "0/min", "-1/min", "5/", "5/0s", "5/year", "5/400d", "x/s", "5/min "]
        {
            assert_eq!(text.parse::<Rate>(), Err(VelocityError::Rate), "{text:?}");
        }
    }

    #[test]
    fn a_part_is_read_as_it_is_written() {
        for text in ["principal", "header:x-card", "json:/card/number", "form:card"] {
            assert_eq!(text.parse::<VelocityPart>().unwrap().to_string(), text);
        }
        for text in ["", "principal:x", "header:", "header:a b", "json:card", "form:", "path"] {
            assert_eq!(text.parse::<VelocityPart>(), Err(VelocityError::Part), "{text:?}");
        }
    }

    /// R168: so many at once, then one at a time.
    #[test]
    fn r168_a_limit_is_used_up_and_comes_back_evenly() {
        let allowance = Allowance::new([0; 16], rate("5/min"));
        let mut until = None;
        let now = Duration::from_secs(1_000);
        for _ in 0..5 {
            until = Some(allowance.used(until, now).unwrap());
        }
        assert_eq!(allowance.used(until, now), Err(Duration::from_secs(12)));
        let later = now + Duration::from_secs(11);
        assert_eq!(allowance.used(until, later), Err(Duration::from_secs(1)));
        let later = now + Duration::from_secs(12);
        let after = allowance.used(until, later).unwrap();
        assert_eq!(allowance.used(Some(after), later), Err(Duration::from_secs(12)));
    }

    #[test]
    fn a_limit_that_was_not_used_for_long_allows_no_more_than_itself() {
        let allowance = Allowance::new([0; 16], rate("2/s"));
        let day = Duration::from_secs(86_400);
        let mut until = Some(Duration::ZERO);
        for _ in 0..2 {
            until = Some(allowance.used(until, day).unwrap());
        }
        assert!(allowance.used(until, day).is_err());
    }
}
