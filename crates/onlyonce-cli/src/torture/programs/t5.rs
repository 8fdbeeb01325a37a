//! T5: clients with a timeout that is shorter than the service time, which retry at once, several times.

use crate::torture::plan::{Cut, Draft, Kind, Shot, Step, percent};

pub(super) fn write(draft: &mut Draft<'_>) {
    for timeout in TIMEOUTS {
        draft.trial(
            Kind::Duplicates,
            format!("timeout of {} of the service time, {STORM} retries", percent(timeout)),
            |key| {
                let impatient =
                    |node| Step::One(Shot::plain(key).at(node).cut(Cut::After(timeout)));
                let mut steps: Vec<_> = (0..=STORM).map(impatient).collect();
                steps.push(Step::Insist(Shot::plain(key)));
                steps
            },
        );
    }
    draft.trial(Kind::Duplicates, "storm of overlapping impatient clients", |key| {
        let storm = (0..8_u32).map(|number| {
            (number * 150, Shot::plain(key).at(number as usize).cut(Cut::After(400)))
        });
        vec![Step::Staggered(storm.collect()), Step::Insist(Shot::plain(key))]
    });
}

/// Parts of a thousand of the service time.
const TIMEOUTS: [u32; 4] = [100, 400, 700, 950];
const STORM: usize = 3;
