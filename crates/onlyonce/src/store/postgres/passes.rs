//! In which bins records are running.
//!
//! A completion moves no record out of its bin, so that a listing of what is running meets everything that was begun
//! lately. It must not meet everything that was ever begun. Bins are numbers of transactions, and a server can say of
//! any moment which of them are over. So whoever has passed all bins knows where the next pass, its own or that of a
//! node that starts, may meet what runs:
//!
//! 1. from the first bin on in which this one met something,
//! 2. from the bin on of the first transaction that began after this pass did,
//! 3. in the bins of the few transactions that were under way when it began, and of records of another version.
//!
//! What is learned of one connection is not used in another: behind it there may be a server that has not seen all that
//! the first one had.

use std::collections::BTreeSet;

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
    /// The first bin in which something runs.
    first: i64,
    /// Bins in which something runs that this build does not read. It is for others to read and to move.
    foreign: BTreeSet<i64>,
    met_ahead: bool,
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
pub(super) struct Look<'a> {
    pub(super) connection: u64,
    pub(super) after: Option<Cursor>,
    pub(super) met: &'a [Met],
    /// The bin of the transaction that begins after it.
    pub(super) next_bin: i64,
    pub(super) next: Option<Cursor>,
}

/// A record that is running.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    pub(super) bin: i64,
    pub(super) id: OperationId,
    pub(super) reads: bool,
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
        self.pass = Some(Pass {
            connection,
            horizon,
            bins,
            first: i64::MAX,
            foreign: BTreeSet::new(),
            met_ahead: false,
            far: Vec::new(),
            next: None,
        });
    }

    /// The bins of the pass at hand; all of them, if there is none.
    pub(super) fn bins(&self) -> Bins {
        let all = || Bins { first: 1, last: i64::MAX, early: Vec::new() };
        self.pass.as_ref().map_or_else(all, |pass| pass.bins.clone())
    }

    /// Takes note of a page. One that does not go on where the pass is says nothing of what lies between. After the
    /// last one: the records that are to be moved up.
    pub(super) fn look(&mut self, look: &Look<'_>) -> Vec<OperationId> {
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
    fn take(&mut self, look: &Look<'_>) {
        for met in look.met {
            if met.reads || self.foreign.len() >= FOREIGN_MAX {
                self.first = self.first.min(met.bin);
            } else {
                self.foreign.insert(met.bin);
            }
            let is_ahead = met.bin > look.next_bin;
            self.met_ahead |= is_ahead;
            if (is_ahead || self.is_behind(met, look)) && self.far.len() < FAR_MAX {
                self.far.push(met.id);
            }
        }
        self.next = look.next;
    }

    /// Whether the next pass would have to look at everything that was begun since, and that is more than a page.
    fn is_behind(&self, met: &Met, look: &Look<'_>) -> bool {
        met.bin < self.horizon.next - OLD_BINS && look.next.is_some()
    }

    fn end(self) -> Passed {
        let Horizon { next, open, .. } = self.horizon;
        let first = self.first.min(next);
        let mut early = self.foreign;
        early.extend(open);
        early.retain(|bin| *bin < first);
        let early = early.into_iter().collect();
        Passed { connection: self.connection, first, early, met_ahead: self.met_ahead }
    }
}

/// Bins of records that this build does not read, but for which listings begin later.
const FOREIGN_MAX: usize = 1_000;
/// Records that one pass moves up.
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

    /// A page that met records of these bins.
    struct Page {
        after: Option<Cursor>,
        met: Vec<Met>,
        next: Option<Cursor>,
        connection: u64,
    }

    fn page<const N: usize>(after: Option<Cursor>, bins: [i64; N], next: Option<Cursor>) -> Page {
        let met = |bin| Met { bin, id: OperationId::from_bytes([1; 16]), reads: true };
        Page { after, met: bins.map(met).to_vec(), next, connection: 0 }
    }

    impl Page {
        fn look(&self, passes: &mut Passes) -> usize {
            let Self { after, next, connection, met } = self;
            let (after, next, connection) = (*after, *next, *connection);
            passes.look(&Look { connection, after, met, next_bin: 110, next }).len()
        }
    }

    /// The bins of the pass after one of these pages.
    fn passed(passes: &mut Passes, pages: &[Page]) -> Bins {
        for page in pages {
            if page.after.is_none() {
                passes.begin(0, horizon());
            }
            page.look(passes);
        }
        passes.begin(0, Horizon { next: 200, ..horizon() });
        passes.bins()
    }

    fn whole<const N: usize>(bins: [i64; N]) -> [Page; 2] {
        [page(None, bins, SECOND), page(SECOND, [], None)]
    }

    /// What is looked at while this node knows nothing itself.
    fn all() -> Bins {
        Bins { first: 10, last: i64::MAX, early: vec![5] }
    }

    #[test]
    fn a_pass_begins_where_the_last_one_began_and_looks_at_what_was_under_way_then() {
        let next = passed(&mut Passes::default(), &whole([]));
        assert_eq!(next, Bins { first: 100, last: 200, early: vec![70, 90] });
    }

    #[test]
    fn a_pass_begins_no_later_than_something_runs() {
        let next = passed(&mut Passes::default(), &whole([80, 95]));
        assert_eq!(next, Bins { first: 80, last: 200, early: vec![70] });
    }

    #[test]
    fn a_pass_looks_ahead_as_long_as_something_runs_there() {
        let next = passed(&mut Passes::default(), &whole([105, 5_000]));
        assert_eq!(next, Bins { first: 100, last: i64::MAX, early: vec![70, 90] });
        let next = passed(&mut Passes::default(), &whole([110]));
        assert_eq!(next.last, 200, "it was claimed after the pass began");
    }

    #[test]
    fn the_others_are_told_what_this_node_knows() {
        let mut passes = Passes::default();
        assert_eq!(passes.to_tell(0), None);
        passed(&mut passes, &whole([80]));
        assert_eq!(passes.to_tell(0), Some((80, vec![70])));
    }

    #[test]
    fn what_this_build_cannot_read_is_for_those_who_can() {
        let mut passes = Passes::default();
        let mut pages = whole([60, 80]);
        pages[0].met[0].reads = false;
        assert_eq!(passed(&mut passes, &pages), Bins { first: 80, last: 200, early: vec![60, 70] });
        assert_eq!(passes.to_tell(0), Some((80, vec![60, 70])));
    }

    #[test]
    fn what_was_passed_in_another_connection_counts_for_nothing() {
        let mut passes = Passes::default();
        passed(&mut passes, &whole([]));
        assert_eq!(passes.to_tell(1), None);
        passes.begin(1, horizon());
        assert_eq!(passes.bins(), all());
        let mut passes = Passes::default();
        let lost = Page { connection: 1, ..page(SECOND, [], None) };
        assert_eq!(passed(&mut passes, &[page(None, [], SECOND), lost]), all());
    }

    #[test]
    fn a_pass_with_a_gap_counts_for_nothing() {
        for pages in [
            vec![page(None, [], SECOND)],
            vec![page(None, [], SECOND), page(THIRD, [], None)],
            vec![page(SECOND, [], None)],
            // Another one has begun, and is not as far.
            vec![page(None, [], SECOND), page(None, [], SECOND), page(THIRD, [], None)],
        ] {
            assert_eq!(passed(&mut Passes::default(), &pages), all());
        }
    }

    #[test]
    fn a_pass_that_broke_off_leaves_what_the_last_one_knew() {
        let mut passes = Passes::default();
        passed(&mut passes, &whole([]));
        passed(&mut passes, &[page(None, [20], SECOND)]);
        assert_eq!(passes.bins(), Bins { first: 100, last: 200, early: vec![70, 90] });
        assert_eq!(passes.to_tell(0), Some((100, vec![70, 90])));
    }

    #[test]
    fn what_is_more_than_a_page_behind_or_ahead_is_moved_up_at_the_end() {
        let behind = 100 - OLD_BINS - 1;
        let moved = |bin, next| {
            let mut passes = Passes::default();
            passes.begin(0, horizon());
            let first = page(None, [bin], next).look(&mut passes);
            (first, page(SECOND, [], None).look(&mut passes))
        };
        assert_eq!(moved(behind, SECOND), (0, 1));
        assert_eq!(moved(111, SECOND), (0, 1));
        assert_eq!(moved(111, None), (1, 0));
        assert_eq!(moved(behind + 1, SECOND), (0, 0));
        assert_eq!(moved(110, SECOND), (0, 0));
        assert_eq!(moved(behind, None), (0, 0));
    }
}
