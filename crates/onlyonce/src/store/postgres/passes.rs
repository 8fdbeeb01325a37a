//! In which bins records are running.
//!
//! A completion moves no record out of its bin, so that a listing of what is running meets everything that was begun
//! lately. It must not meet everything that was ever begun. Bins are numbers of transactions, and a server can say of
//! any moment which of them are over. So whoever has passed all bins knows three things of the next pass:
//!
//! 1. it meets nothing that runs before the first bin in which this one did, nor before the transactions that came after
//!    this one began,
//! 2. but for the bins of transactions that were under way then,
//! 3. and a node that starts now need not look before the first of all these.
//!
//! What is learned of one connection is not used in another: behind it there may be a server that has not seen all that
//! the first one had.

use super::sql::OLD_BINS;
use crate::store::Cursor;

/// What this node knows of what is running.
#[derive(Debug, Default)]
pub(super) struct Passes {
    pass: Option<Pass>,
    passed: Option<Passed>,
}

/// Transactions, by their bins, at a moment.
#[derive(Clone, Debug)]
pub(super) struct Horizon {
    /// Where something may be running, as others have told.
    pub(super) told: i64,
    /// The first one that is not over.
    pub(super) oldest: i64,
    /// The next one that begins.
    pub(super) next: i64,
    /// All that are not over.
    pub(super) open: Vec<i64>,
}

/// Which bins a pass looks at.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bins {
    pub(super) first: i64,
    pub(super) last: i64,
    /// And these, before the first.
    pub(super) early: Vec<i64>,
}

#[derive(Debug)]
struct Pass {
    connection: u64,
    horizon: Horizon,
    bins: Bins,
    /// The first bin in which something runs.
    lowest: i64,
    next: Option<Cursor>,
}

/// What the last pass leaves for the next.
#[derive(Debug)]
struct Passed {
    connection: u64,
    first: i64,
    early: Vec<i64>,
    to_tell: i64,
}

/// A page of a listing.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) connection: u64,
    pub(super) after: Option<Cursor>,
    /// The first bin in which it met something that runs.
    pub(super) lowest: Option<i64>,
    pub(super) next: Option<Cursor>,
}

impl Passes {
    /// Begins a pass. The first one of a connection looks at bins that are yet to come, too: records that came from
    /// another server are there.
    pub(super) fn begin(&mut self, connection: u64, horizon: Horizon) {
        let bins = match self.passed(connection) {
            Some(Passed { first, early, .. }) => {
                Bins { first: *first, last: horizon.next, early: early.clone() }
            }
            None => Bins { first: horizon.told, last: i64::MAX, early: Vec::new() },
        };
        self.pass = Some(Pass { connection, horizon, bins, lowest: i64::MAX, next: None });
    }

    /// The bins of the pass at hand; all of them, if there is none.
    pub(super) fn bins(&self) -> Bins {
        let all = || Bins { first: 1, last: i64::MAX, early: Vec::new() };
        self.pass.as_ref().map_or_else(all, |pass| pass.bins.clone())
    }

    /// Whether these are bins that a later pass should not have to look at.
    pub(super) fn is_far(&self, lowest: i64, highest: i64) -> bool {
        let is_far = |next| lowest < next - OLD_BINS || highest > next;
        self.pass.as_ref().is_some_and(|pass| is_far(pass.horizon.next))
    }

    /// Takes note of a page. One that does not go on where the pass is says nothing of what lies between.
    pub(super) fn look(&mut self, look: &Look) {
        let Some(mut pass) = self.pass.take_if(|pass| pass.next == look.after) else {
            return;
        };
        if pass.connection != look.connection {
            return;
        }
        pass.lowest = pass.lowest.min(look.lowest.unwrap_or(i64::MAX));
        pass.next = look.next;
        if pass.next.is_some() {
            self.pass = Some(pass);
        } else {
            self.passed = Some(pass.end());
        }
    }

    /// From which bin on something may be running, for those who start.
    pub(super) fn to_tell(&self, connection: u64) -> Option<i64> {
        self.passed(connection).map(|passed| passed.to_tell)
    }

    fn passed(&self, connection: u64) -> Option<&Passed> {
        self.passed.as_ref().filter(|passed| passed.connection == connection)
    }
}

impl Pass {
    fn end(self) -> Passed {
        let Horizon { oldest, next, mut open, .. } = self.horizon;
        let first = self.lowest.min(next);
        open.retain(|bin| *bin < first);
        let to_tell = self.lowest.min(oldest);
        Passed { connection: self.connection, first, early: open, to_tell }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Option<Cursor> = Some(Cursor(1));
    const THIRD: Option<Cursor> = Some(Cursor(2));

    /// Transactions of the bins 70 and 90 are under way, and the next one is of 100.
    fn horizon() -> Horizon {
        Horizon { told: 10, oldest: 70, next: 100, open: vec![70, 90] }
    }

    fn page(after: Option<Cursor>, lowest: Option<i64>, next: Option<Cursor>) -> Look {
        Look { connection: 0, after, lowest, next }
    }

    /// The bins of the pass after one of these pages.
    fn passed(passes: &mut Passes, pages: &[Look]) -> Bins {
        for look in pages {
            if look.after.is_none() {
                passes.begin(0, horizon());
            }
            passes.look(look);
        }
        passes.begin(0, Horizon { next: 200, ..horizon() });
        passes.bins()
    }

    fn whole(lowest: Option<i64>) -> [Look; 2] {
        [page(None, lowest, SECOND), page(SECOND, None, None)]
    }

    /// What is looked at while nothing is known.
    fn all() -> Bins {
        Bins { first: 10, last: i64::MAX, early: vec![] }
    }

    #[test]
    fn a_pass_begins_where_the_last_one_began_and_looks_at_what_was_under_way_then() {
        let next = passed(&mut Passes::default(), &whole(None));
        assert_eq!(next, Bins { first: 100, last: 200, early: vec![70, 90] });
    }

    #[test]
    fn a_pass_begins_no_later_than_something_runs() {
        let next = passed(&mut Passes::default(), &whole(Some(80)));
        assert_eq!(next, Bins { first: 80, last: 200, early: vec![70] });
    }

    #[test]
    fn the_others_are_told_of_what_runs_and_of_what_is_under_way() {
        for (lowest, told) in [(None, 70), (Some(80), 70), (Some(60), 60)] {
            let mut passes = Passes::default();
            assert_eq!(passes.to_tell(0), None);
            passed(&mut passes, &whole(lowest));
            assert_eq!(passes.to_tell(0), Some(told));
        }
    }

    #[test]
    fn what_was_passed_in_another_connection_counts_for_nothing() {
        let mut passes = Passes::default();
        passed(&mut passes, &whole(None));
        assert_eq!(passes.to_tell(1), None);
        passes.begin(1, horizon());
        assert_eq!(passes.bins(), all());
        let mut passes = Passes::default();
        let lost = Look { connection: 1, ..page(SECOND, None, None) };
        assert_eq!(passed(&mut passes, &[page(None, None, SECOND), lost]), all());
    }

    #[test]
    fn a_pass_with_a_gap_counts_for_nothing() {
        for pages in [
            vec![page(None, None, SECOND)],
            vec![page(None, None, SECOND), page(THIRD, None, None)],
            vec![page(SECOND, None, None)],
            // Another one has begun, and is not as far.
            vec![page(None, None, SECOND), page(None, None, SECOND), page(THIRD, None, None)],
        ] {
            assert_eq!(passed(&mut Passes::default(), &pages), all(), "{pages:?}");
        }
    }

    #[test]
    fn a_pass_that_broke_off_leaves_what_the_last_one_knew() {
        let mut passes = Passes::default();
        passed(&mut passes, &whole(None));
        passed(&mut passes, &[page(None, Some(20), SECOND)]);
        assert_eq!(passes.bins(), Bins { first: 100, last: 200, early: vec![70, 90] });
        assert_eq!(passes.to_tell(0), Some(70));
    }
}
