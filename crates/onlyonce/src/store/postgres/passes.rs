//! In which bins records are running.
//!
//! A completion moves no record out of its bin, so that a listing of what is running meets everything that was begun
//! lately. It must not meet everything that was ever begun. Bins are numbers of transactions, and a server can say of
//! any moment which of them are over. So whoever has passed all bins knows where the next pass, its own or that of a
//! node that starts, may meet what runs:
//!
//! 1. from the first bin on in which this one met something,
//! 2. from the bin on of the first transaction that began after this pass did,
//! 3. in the bins of the few transactions that were under way when it began.
//!
//! What is learned of one connection is not used in another: behind it there may be a server that has not seen all that
//! the first one had.

use super::sql::OLD_BINS;
use crate::scope::OperationId;
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
    /// Where something may be running, as others have told: from a bin on, and in some before it.
    pub(super) told: (i64, Vec<i64>),
    /// The next one that begins.
    pub(super) next: i64,
    /// All that are under way.
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
    /// The first and the last bin in which something runs.
    met: Option<(i64, i64)>,
    /// What runs where it should not stay. It is moved when all is listed, or else it would be listed again.
    far: Vec<OperationId>,
    next: Option<Cursor>,
}

/// What a pass leaves for the next.
#[derive(Debug)]
struct Passed {
    connection: u64,
    first: i64,
    early: Vec<i64>,
    /// It met records that came from another server, in bins that are yet to come here.
    met_ahead: bool,
}

/// A page of a listing.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) connection: u64,
    pub(super) after: Option<Cursor>,
    /// The first and the last bin in which it met something that runs.
    pub(super) met: Option<(i64, i64)>,
    pub(super) ids: Vec<OperationId>,
    pub(super) next: Option<Cursor>,
}

impl Passes {
    /// Begins a pass. The first one of a connection looks at bins that are yet to come, too.
    pub(super) fn begin(&mut self, connection: u64, horizon: Horizon) {
        let bins = match self.passed(connection) {
            Some(Passed { first, early, met_ahead, .. }) => {
                let last = if *met_ahead { i64::MAX } else { horizon.next };
                Bins { first: *first, last, early: early.clone() }
            }
            None => {
                let (first, early) = horizon.told.clone();
                Bins { first, last: i64::MAX, early }
            }
        };
        let (met, far, next) = (None, Vec::new(), None);
        self.pass = Some(Pass { connection, horizon, bins, met, far, next });
    }

    /// The bins of the pass at hand; all of them, if there is none.
    pub(super) fn bins(&self) -> Bins {
        let all = || Bins { first: 1, last: i64::MAX, early: Vec::new() };
        self.pass.as_ref().map_or_else(all, |pass| pass.bins.clone())
    }

    /// Takes note of a page. One that does not go on where the pass is says nothing of what lies between. After the
    /// last one: the records that are to be moved up.
    pub(super) fn look(&mut self, look: Look) -> Vec<OperationId> {
        let Some(mut pass) = self.pass.take_if(|pass| pass.next == look.after) else {
            return Vec::new();
        };
        if pass.connection != look.connection {
            return Vec::new();
        }
        pass.take(look);
        if pass.next.is_some() {
            self.pass = Some(pass);
            return Vec::new();
        }
        let far = std::mem::take(&mut pass.far);
        self.passed = Some(pass.end());
        far
    }

    /// Where something may be running, for those who start.
    pub(super) fn to_tell(&self, connection: u64) -> Option<(i64, Vec<i64>)> {
        self.passed(connection).map(|passed| (passed.first, passed.early.clone()))
    }

    fn passed(&self, connection: u64) -> Option<&Passed> {
        self.passed.as_ref().filter(|passed| passed.connection == connection)
    }
}

impl Pass {
    fn take(&mut self, look: Look) {
        if self.is_far(&look) && self.far.len() < FAR_MAX {
            self.far.extend(look.ids);
        }
        let both = |one: (i64, i64), other: (i64, i64)| (one.0.min(other.0), one.1.max(other.1));
        self.met = [self.met, look.met].into_iter().flatten().reduce(both);
        self.next = look.next;
    }

    /// Whether what a page has met should not stay where it is: the next pass would have to look at everything that was
    /// begun since, which is more than a page.
    fn is_far(&self, look: &Look) -> bool {
        let next = self.horizon.next;
        let is_far = |(first, last)| last > next || first < next - OLD_BINS && look.next.is_some();
        look.met.is_some_and(is_far)
    }

    fn end(self) -> Passed {
        let Horizon { next, open: mut early, .. } = self.horizon;
        let first = self.met.map_or(next, |(first, _)| first.min(next));
        early.retain(|bin| *bin < first);
        let met_ahead = self.met.is_some_and(|(_, last)| last > next);
        Passed { connection: self.connection, first, early, met_ahead }
    }
}

/// Records that one pass moves up, but for its last page.
const FAR_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Option<Cursor> = Some(Cursor(1));
    const THIRD: Option<Cursor> = Some(Cursor(2));

    /// Transactions of the bins 70 and 90 are under way, and the next one is of 100.
    fn horizon() -> Horizon {
        Horizon { told: (10, vec![5]), next: 100, open: vec![70, 90] }
    }

    fn page(after: Option<Cursor>, met: Option<(i64, i64)>, next: Option<Cursor>) -> Look {
        Look { connection: 0, after, met, ids: Vec::new(), next }
    }

    /// The bins of the pass after one of these pages.
    fn passed(passes: &mut Passes, pages: impl IntoIterator<Item = Look>) -> Bins {
        for look in pages {
            if look.after.is_none() {
                passes.begin(0, horizon());
            }
            passes.look(look);
        }
        passes.begin(0, Horizon { next: 200, ..horizon() });
        passes.bins()
    }

    fn whole(met: Option<(i64, i64)>) -> [Look; 2] {
        [page(None, met, SECOND), page(SECOND, None, None)]
    }

    /// What is looked at while this node knows nothing itself.
    fn all() -> Bins {
        Bins { first: 10, last: i64::MAX, early: vec![5] }
    }

    #[test]
    fn a_pass_begins_where_the_last_one_began_and_looks_at_what_was_under_way_then() {
        let next = passed(&mut Passes::default(), whole(None));
        assert_eq!(next, Bins { first: 100, last: 200, early: vec![70, 90] });
    }

    #[test]
    fn a_pass_begins_no_later_than_something_runs() {
        let next = passed(&mut Passes::default(), whole(Some((80, 95))));
        assert_eq!(next, Bins { first: 80, last: 200, early: vec![70] });
    }

    #[test]
    fn a_pass_looks_ahead_as_long_as_something_runs_there() {
        let next = passed(&mut Passes::default(), whole(Some((101, 5_000))));
        assert_eq!(next, Bins { first: 100, last: i64::MAX, early: vec![70, 90] });
    }

    #[test]
    fn the_others_are_told_what_this_node_knows() {
        let mut passes = Passes::default();
        assert_eq!(passes.to_tell(0), None);
        passed(&mut passes, whole(Some((80, 80))));
        assert_eq!(passes.to_tell(0), Some((80, vec![70])));
    }

    #[test]
    fn what_was_passed_in_another_connection_counts_for_nothing() {
        let mut passes = Passes::default();
        passed(&mut passes, whole(None));
        assert_eq!(passes.to_tell(1), None);
        passes.begin(1, horizon());
        assert_eq!(passes.bins(), all());
        let mut passes = Passes::default();
        let lost = Look { connection: 1, ..page(SECOND, None, None) };
        assert_eq!(passed(&mut passes, [page(None, None, SECOND), lost]), all());
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
            let said = format!("{pages:?}");
            assert_eq!(passed(&mut Passes::default(), pages), all(), "{said}");
        }
    }

    #[test]
    fn a_pass_that_broke_off_leaves_what_the_last_one_knew() {
        let mut passes = Passes::default();
        passed(&mut passes, whole(None));
        passed(&mut passes, [page(None, Some((20, 20)), SECOND)]);
        assert_eq!(passes.bins(), Bins { first: 100, last: 200, early: vec![70, 90] });
        assert_eq!(passes.to_tell(0), Some((100, vec![70, 90])));
    }

    #[test]
    fn what_is_more_than_a_page_behind_or_ahead_is_moved_up_at_the_end() {
        let behind = 1_000 - OLD_BINS - 1;
        let moved = |met, next| {
            let ids = vec![OperationId::from_bytes([1; 16])];
            let mut passes = Passes::default();
            passes.begin(0, Horizon { next: 1_000, ..horizon() });
            let first = passes.look(Look { ids, ..page(None, Some(met), next) }).len();
            let second = passes.look(page(SECOND, None, None)).len();
            (first, second)
        };
        assert_eq!(moved((behind, 990), SECOND), (0, 1));
        assert_eq!(moved((990, 1_001), SECOND), (0, 1));
        assert_eq!(moved((990, 1_001), None), (1, 0));
        assert_eq!(moved((behind + 1, 1_000), SECOND), (0, 0));
        assert_eq!(moved((behind, 990), None), (0, 0));
    }
}
