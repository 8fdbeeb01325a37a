//! T5: clients with a timeout that is shorter than the service time, which retry at once, several times. Most clients
//! close their connection in order; some reset it.

use crate::torture::plan::{Cut, Draft, End, Kind, Shot, Step, percent};

pub(super) fn write(draft: &mut Draft<'_>) {
    for (timeout, end) in
        TIMEOUTS.into_iter().flat_map(|timeout| End::ALL.map(|end| (timeout, end)))
    {
        let told = format!("{} of the service time, then {end}", percent(timeout));
        draft.trial(Kind::Duplicates, format!("timeout of {told}, {STORM} retries"), |key| {
            let impatient =
                |node| Step::One(Shot::plain(key).at(node).cut(Cut::After(end, timeout)));
            let mut steps: Vec<_> = (0..=STORM).map(impatient).collect();
            steps.push(Step::Insist(Shot::plain(key)));
            steps
        });
    }
    for end in End::ALL {
        let label = format!("storm of overlapping impatient clients, each {end}");
        draft.trial(Kind::Duplicates, label, |key| {
            let storm = (0..8_u32).map(|number| {
                (number * 150, Shot::plain(key).at(number as usize).cut(Cut::After(end, 400)))
            });
            vec![Step::Staggered(storm.collect()), Step::Insist(Shot::plain(key))]
        });
    }
}

/// Parts of a thousand of the service time.
const TIMEOUTS: [u32; 4] = [100, 400, 700, 950];
const STORM: usize = 3;
