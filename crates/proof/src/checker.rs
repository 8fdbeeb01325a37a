//! Judges a history. It knows nothing of the product: it reads lines, each a JSON object, in any order.
//!
//! | line | says |
//! |---|---|
//! | `invoke` | `process` sends a request of `caller` with `key`, content `fp`, as its nth `attempt`, to `via` |
//! | `ok` | its answer: `status`, `body`, whether it was `replayed`, and whom the body `names` |
//! | `fail` | it was refused, and by itself did nothing; `why` is `in_progress`, `mismatch`, `not_executed` or `unavailable` |
//! | `info` | nobody can tell; `why` is `unknown` (so it was told) or `lost` (no answer came) |
//! | `effect`, `arrival` | of the service behind: a request came, and had an effect or was recognised as a repetition |
//! | `fault` | `what` was done to `on`, between `from` and `t` |
//! | `quiet` | from now on there are no faults, and everything settles within `settle` |
//!
//! A key is a register that is written once, so that each operation is judged alone, in one pass over its lines.
//!
//! - **I1** an operation has at most one effect
//! - **I2** all its answers are equal
//! - **I3** there is no answer without an effect before it
//! - **I4** an answer names the caller and the key that asked
//! - **I5** a request of another content is never answered as if it were the first, and has no effect
//! - **I6** attempts have increasing numbers, no number is used twice, and what is answered is what an attempt has made
//! - **I7** whoever asks after an answer was given gets that answer, and not "in progress", "unknown" or a new one
//! - **I8** what was refused in every attempt has no effect; what nobody can tell may have one, or none
//! - **I9** "unknown" is told only of operations that met a fault
//! - **I10** after the faults everything settles in time
//! - **I12** enough of everything has happened for the verdict to mean something

mod line;
mod operation;
mod verdict;

use std::collections::{BTreeMap, HashMap};

use self::line::{Kind, Line};
use self::operation::Operation;
pub use self::verdict::{Verdict, Violation};

/// Judges `lines`. `needs` are the least counts (I12); [`Verdict::counts`] has what can be asked for.
pub fn check<'a>(
    lines: impl IntoIterator<Item = &'a str>,
    needs: &[(impl AsRef<str>, usize)],
) -> Verdict {
    let mut read = Vec::new();
    for text in lines {
        match Line::read(text) {
            Some(line) => read.push(line),
            None => return Verdict::unreadable(text),
        }
    }
    read.sort_by_key(|line| line.t);
    let faults = Faults::of(&read);
    let quiet = read.iter().find(|line| line.kind == Kind::Quiet);
    let mut verdict = Verdict { counts: count(&read), ..Verdict::default() };
    for operation in operations(&read) {
        verdict.operations += 1;
        verdict.faulted += usize::from(operation.was_hit(&faults));
        let broken = operation.judge(&faults, quiet);
        if let Some((property, what)) = broken.filter(|_| verdict.violation.is_none()) {
            let timeline = operation.timeline(&faults);
            verdict.violation = Some(Violation { property, what, timeline });
        }
    }
    verdict.demand(needs);
    verdict
}

/// The lines of each operation, in the order of their first lines.
fn operations(lines: &[Line]) -> Vec<Operation<'_>> {
    let mut places = HashMap::new();
    let mut operations: Vec<Operation<'_>> = Vec::new();
    for line in lines.iter().filter(|line| line.kind.is_of_operation()) {
        let place = *places.entry((&line.caller, &line.key)).or_insert(operations.len());
        if place == operations.len() {
            operations.push(Operation::default());
        }
        operations[place].push(line);
    }
    operations
}

fn count(lines: &[Line]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line.counted_as()).or_default() += 1;
        if line.kind == Kind::Ok && line.replayed {
            *counts.entry("replayed".to_owned()).or_default() += 1;
        }
    }
    counts
}

/// What was done, and when, by whom it was done to.
pub(crate) struct Faults {
    on: HashMap<String, Vec<(u64, u64, String)>>,
}

/// A fault on this place is one on everybody.
const EVERYBODY: &str = "all";

impl Faults {
    fn of(lines: &[Line]) -> Self {
        let mut on = HashMap::<_, Vec<_>>::new();
        for line in lines.iter().filter(|line| line.kind == Kind::Fault) {
            let window = (line.from.unwrap_or(line.t), line.t, line.what.clone());
            on.entry(line.on.clone()).or_default().push(window);
        }
        Self { on }
    }

    /// The first fault on `place`, or on everybody, between two moments. `None` for any place.
    pub(crate) fn between(&self, from: u64, to: u64, place: Option<&str>) -> Option<&str> {
        let is_there = |on: &str| place.is_none_or(|place| place == on || on == EVERYBODY);
        let places = self.on.iter().filter(|(on, _)| is_there(on));
        places
            .flat_map(|(_, windows)| within(windows, from, to))
            .map(|(_, _, what)| what.as_str())
            .next()
    }

    /// Those that overlap with the time between two moments, in order.
    pub(crate) fn all_between(&self, from: u64, to: u64) -> Vec<(u64, String)> {
        let told = |(on, windows): (&String, &Vec<(u64, u64, String)>)| {
            let on = on.clone();
            let windows: Vec<_> = within(windows, from, to).cloned().collect();
            windows.into_iter().map(move |(at, _, what)| (at, format!("FAULT {what} of {on}")))
        };
        let mut all: Vec<_> = self.on.iter().flat_map(told).collect();
        all.sort();
        all
    }
}

/// The windows are in the order of their ends, and a window that begins early is short: a few are looked at.
fn within(
    windows: &[(u64, u64, String)],
    from: u64,
    to: u64,
) -> impl Iterator<Item = &(u64, u64, String)> {
    let first = windows.partition_point(|(_, end, _)| *end < from);
    let near = windows[first..].iter().take(WINDOWS_MAX);
    near.filter(move |(begin, _, _)| *begin <= to)
}

/// How many faults on one place may overlap with one request.
const WINDOWS_MAX: usize = 64;
