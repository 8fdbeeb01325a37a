//! T1: the same request again and again. Every answer must be the first one.

use crate::torture::plan::{Draft, Kind, Shot, Step};

pub(super) fn write(draft: &mut Draft<'_>) {
    for _ in 0..KEYS {
        draft.trial(Kind::Duplicates, format!("{REPLAYS} replays"), |key| {
            let replays = (0..=REPLAYS).map(|node| Step::One(Shot::plain(key).at(node)));
            replays.chain([Step::Confirm(Shot::plain(key))]).collect()
        });
    }
}

const KEYS: usize = 4;
const REPLAYS: usize = 4;
