//! T15: a crowd with one key. One execution, no wrong answer, and a service that is well afterwards.

use crate::torture::plan::{Draft, Kind, Shot, Step};

pub(super) fn write(draft: &mut Draft<'_>) {
    let crowd = draft.options.crowd;
    draft.trial(Kind::Hot, format!("{crowd} requests with one key"), |key| {
        let shots = (0..crowd).map(|node| Shot::plain(key).at(node));
        vec![Step::Burst(shots.collect()), Step::Insist(Shot::plain(key))]
    });
    draft.trial(Kind::Hot, "a new key afterwards", |key| vec![Step::One(Shot::plain(key))]);
}
