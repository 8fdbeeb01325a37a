//! T13: HTTP/2 streams that are reset after their last DATA frame, then a retry on another connection.

use crate::torture::plan::{Cut, Draft, Kind, Over, Shot, Step, percent};

pub(super) fn write(draft: &mut Draft<'_>) {
    for at in RESETS {
        draft.trial(
            Kind::Duplicates,
            format!("stream reset after {} of the service time", percent(at)),
            |key| {
                let reset = Shot::plain(key).over(Over::Http2).cut(Cut::After(at));
                let retry = Shot::plain(key).over(Over::Http2).at(1);
                vec![Step::One(reset), Step::Insist(retry), Step::One(Shot::plain(key))]
            },
        );
    }
}

/// Parts of a thousand of the service time.
const RESETS: [u32; 5] = [0, 20, 300, 700, 1000];
