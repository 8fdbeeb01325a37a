//! How our values travel to Postgres and back.

use std::fmt;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::clock::StoreTime;
use crate::store::BoxError;

/// A moment as a `timestamptz`: microseconds since 2000. Later than Postgres can say is `infinity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(pub(super) StoreTime);

impl Default for Moment {
    fn default() -> Self {
        Self(StoreTime::from_ms(0))
    }
}

impl ToSql for Moment {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        let us = self.0.as_ms().saturating_sub(YEAR_2000_MS).saturating_mul(1_000);
        let us = if us >= END_US { INFINITY } else { us };
        out.extend_from_slice(&us.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl FromSql<'_> for Moment {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, BoxError> {
        Ok(Self(match i64::from_be_bytes(raw.try_into()?) {
            INFINITY => StoreTime::MAX,
            us => StoreTime::from_ms(us.div_euclid(1_000).saturating_add(YEAR_2000_MS)),
        }))
    }

    accepts!(TIMESTAMPTZ);
}

const YEAR_2000_MS: i64 = 946_684_800_000;
/// The end of the year 294276, where the timestamps of Postgres end.
const END_US: i64 = 9_223_371_331_200_000_000;
const INFINITY: i64 = i64::MAX;

/// A parameter that is never shown: the client below writes parameters to the debug log.
pub(super) struct Hidden<'a>(pub(super) &'a (dyn ToSql + Sync));

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(..)")
    }
}

impl ToSql for Hidden<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        self.0.to_sql_checked(kind, out)
    }

    /// The parameter inside is asked by [`to_sql`](Self::to_sql).
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn travelled(ms: i64) -> i64 {
        let mut bytes = BytesMut::new();
        Moment(StoreTime::from_ms(ms)).to_sql(&Type::TIMESTAMPTZ, &mut bytes).unwrap();
        Moment::from_sql(&Type::TIMESTAMPTZ, &bytes).unwrap().0.as_ms()
    }

    // threat B8
    #[test]
    fn a_moment_comes_back_as_it_went_and_ends_with_time() {
        for ms in [0, 1, 5, 1_780_000_000_123, 9_000_000_000_000_000, i64::MAX] {
            assert_eq!(travelled(ms), ms);
        }
        assert_eq!(travelled(i64::MAX - 1), i64::MAX);
    }
}
