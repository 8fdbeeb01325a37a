//! T4: retries at delays from nothing to twice the service time, while the first request is on its way.

use crate::torture::plan::{Draft, Kind, Shot, Step, percent};

pub(super) fn write(draft: &mut Draft<'_>) {
    for step in 0..=STEPS {
        // Off the grid by chance: windows are narrow.
        let delay = step * (2000 / STEPS) + draft.below(2000 / STEPS);
        draft.trial(
            Kind::Duplicates,
            format!("retry after {} of the service time", percent(delay)),
            |key| {
                let both = vec![(0, Shot::plain(key)), (delay, Shot::plain(key).at(1))];
                vec![Step::Staggered(both), Step::Insist(Shot::plain(key))]
            },
        );
    }
}

const STEPS: u32 = 10;
