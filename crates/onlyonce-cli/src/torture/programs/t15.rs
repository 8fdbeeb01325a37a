//! T15: a crowd with one key. One execution, no wrong answer, and a service that is well afterwards: requests with new
//! keys fail no more often than before.

use crate::torture::plan::{Draft, Kind, Shot, Step};

pub(super) fn write(draft: &mut Draft<'_>) {
    fresh(draft, "a new key before the crowd");
    let crowd = draft.options.crowd;
    draft.trial(Kind::Hot, format!("{crowd} requests with one key"), |key| {
        let shots = (0..crowd).map(|node| Shot::plain(key).at(node));
        vec![Step::Burst(shots.collect()), Step::Insist(Shot::plain(key))]
    });
    fresh(draft, "a new key after the crowd");
}

fn fresh(draft: &mut Draft<'_>, label: &str) {
    for _ in 0..FRESH {
        draft.trial(Kind::Fresh, label, |key| vec![Step::One(Shot::plain(key))]);
    }
}

/// Enough that a service that the crowd has ended is told apart from one that fails now and then by itself.
const FRESH: usize = 12;
