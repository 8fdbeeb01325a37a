//! From which bin on records are running.
//!
//! A completion moves no record out of its bin, so that a listing of what is running meets everything that was begun
//! lately. It must not meet everything that was ever begun: who has passed all bins knows the first one in which
//! something runs, and begins there the next time. That bin is a little earlier than the pass itself, because a claim
//! takes its time before it can be seen.
//!
//! 1. A **short** pass begins where the last pass of this node left off, less [`LATE_BINS`].
//! 2. A **long** pass begins where the last long pass of any node left off, less [`VERY_LATE_BINS`], and is the one
//!    whose end is told to the others. Who starts begins with one.
//! 3. What came later than that is shown again when somebody asks for it ([`super::overdue`]).
//!
//! A bin that is wrong hides a record that a dead owner left, which stays running. It makes nobody run anything.

use std::time::Duration;

use crate::clock::StoreTime;
use crate::store::Cursor;
use crate::store::time::Told;

/// What this node knows of what is running.
#[derive(Debug, Default)]
pub(super) struct Passes {
    pass: Option<Pass>,
    short: Mark,
    long: Mark,
    /// When the next pass is a long one, on this node's clock.
    long_at: Duration,
}

/// No record that is running was begun before `bin`, for as long as the clock was confirmed so often.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    confirmed: i64,
    bin: i32,
}

#[derive(Debug)]
struct Pass {
    is_long: bool,
    begun: Option<Told>,
    /// The first bin in which something runs.
    lowest: i32,
    next: Option<Cursor>,
}

/// A page of a listing.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) after: Option<Cursor>,
    pub(super) told: Told,
    /// The bin in which it met something that runs.
    pub(super) bin: Option<i32>,
    pub(super) next: Option<Cursor>,
}

impl Passes {
    /// The bin from which on a listing looks that goes on `after` a page, or begins.
    pub(super) fn first_bin(
        &mut self,
        after: Option<Cursor>,
        confirmed: i64,
        boot: Duration,
    ) -> i32 {
        if after.is_some() {
            return 0;
        }
        let is_long = boot >= self.long_at || self.short.confirmed != confirmed;
        self.pass = Some(Pass { is_long, begun: None, lowest: i32::MAX, next: None });
        if is_long { 0 } else { self.short.bin }
    }

    /// Takes note of a page. One that does not go on where the pass is says nothing of what lies between, and one of a
    /// clock that nobody trusts says nothing at all.
    pub(super) fn look(&mut self, look: &Look, boot: Duration) {
        let Some(mut pass) = self.pass.take_if(|pass| pass.next == look.after) else {
            return;
        };
        let begun = *pass.begun.get_or_insert(look.told);
        if look.told.clock_held || look.told.confirmed != begun.confirmed {
            return;
        }
        pass.lowest = pass.lowest.min(look.bin.unwrap_or(i32::MAX));
        pass.next = look.next;
        if pass.next.is_some() {
            self.pass = Some(pass);
        } else {
            self.end(&pass, begun, boot);
        }
    }

    fn end(&mut self, pass: &Pass, begun: Told, boot: Duration) {
        let mark = |late_bins| Mark {
            confirmed: begun.confirmed,
            bin: pass.lowest.min(begun_bin(begun.now) - late_bins),
        };
        self.short = mark(LATE_BINS);
        if pass.is_long {
            self.long = mark(VERY_LATE_BINS);
            self.long_at = boot + LONG_EVERY;
        }
    }

    /// What the others may rely on.
    pub(super) fn to_tell(&self, confirmed: i64) -> Option<i32> {
        (self.long.confirmed == confirmed).then_some(self.long.bin)
    }
}

/// As the statements say it.
fn begun_bin(at: StoreTime) -> i32 {
    i32::try_from(at.as_ms() >> BEGUN_BITS).unwrap_or(i32::MAX)
}

/// The bits of a moment that a bin leaves out: it is 4 seconds long.
pub(super) const BEGUN_BITS: u32 = 12;
/// A statement ends within 4 seconds, and most commits at once.
const LATE_BINS: i32 = 3;
/// A commit may wait for a standby: 2 minutes.
pub(super) const VERY_LATE_BINS: i32 = 30;
const LONG_EVERY: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_BIN: i32 = 1_000;
    const EARLY: Duration = Duration::from_secs(1);

    fn told(bin: i32) -> Told {
        let now = StoreTime::from_ms(i64::from(bin) << BEGUN_BITS);
        Told { now, clock_held: false, confirmed: 7 }
    }

    fn page(after: Option<Cursor>, bin: Option<i32>, next: Option<Cursor>) -> Look {
        Look { after, told: told(NOW_BIN), bin, next }
    }

    /// Whether a pass of these pages ends, and where the next one begins.
    fn passed(passes: &mut Passes, pages: &[Look]) -> i32 {
        for look in pages {
            passes.first_bin(look.after, look.told.confirmed, EARLY);
            passes.look(look, EARLY);
        }
        passes.first_bin(None, 7, EARLY)
    }

    const SECOND: Option<Cursor> = Some(Cursor(1));
    const THIRD: Option<Cursor> = Some(Cursor(2));

    #[test]
    fn a_pass_ends_a_little_before_itself_or_where_something_runs() {
        let whole = [page(None, None, SECOND), page(SECOND, None, None)];
        assert_eq!(passed(&mut Passes::default(), &whole), NOW_BIN - LATE_BINS);
        let runs = [page(None, Some(40), SECOND), page(SECOND, Some(41), None)];
        assert_eq!(passed(&mut Passes::default(), &runs), 40);
    }

    #[test]
    fn the_others_are_told_of_a_long_pass_alone_and_of_an_earlier_bin() {
        let mut passes = Passes::default();
        passed(&mut passes, &[page(None, None, None)]);
        assert_eq!(passes.to_tell(7), Some(NOW_BIN - VERY_LATE_BINS));
        let later = Look { told: told(NOW_BIN + 20), ..page(None, None, None) };
        assert_eq!(passed(&mut passes, &[later]), NOW_BIN + 20 - LATE_BINS);
        assert_eq!(passes.to_tell(7), Some(NOW_BIN - VERY_LATE_BINS));
        assert_eq!(passes.first_bin(None, 7, EARLY + LONG_EVERY), 0, "it is time for a long one");
    }

    #[test]
    fn what_was_passed_before_the_clock_was_confirmed_is_passed_again() {
        let mut passes = Passes::default();
        passed(&mut passes, &[page(None, None, None)]);
        assert_eq!(passes.first_bin(None, 8, EARLY), 0);
        assert_eq!(passes.to_tell(8), None);
    }

    #[test]
    fn a_pass_with_a_gap_says_nothing() {
        for pages in [
            vec![page(None, None, SECOND)],
            vec![page(None, None, SECOND), page(THIRD, None, None)],
            vec![page(SECOND, None, None)],
            // Another one has begun, and is not as far.
            vec![page(None, None, SECOND), page(None, None, SECOND), page(THIRD, None, None)],
        ] {
            assert_eq!(passed(&mut Passes::default(), &pages), 0, "{pages:?}");
        }
    }

    #[test]
    fn a_pass_by_a_clock_that_is_not_trusted_says_nothing() {
        for second in
            [Told { clock_held: true, ..told(NOW_BIN) }, Told { confirmed: 8, ..told(NOW_BIN) }]
        {
            let second = Look { told: second, ..page(SECOND, None, None) };
            let pages = [page(None, None, SECOND), second];
            assert_eq!(passed(&mut Passes::default(), &pages), 0, "{pages:?}");
        }
        let first =
            Look { told: Told { clock_held: true, ..told(NOW_BIN) }, ..page(None, None, None) };
        assert_eq!(passed(&mut Passes::default(), &[first]), 0);
    }
}
