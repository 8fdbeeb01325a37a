//! T13: HTTP/2 streams that are reset after their last DATA frame, and connections that end in order under them; then a
//! retry on another connection.

use crate::torture::plan::{Cut, Draft, End, Kind, Over, Shot, Step, percent};

pub(super) fn write(draft: &mut Draft<'_>) {
    let resets = RESETS.map(|at| (End::Reset, "stream reset", at));
    let closes = CLOSES.map(|at| (End::Close, "connection closed in order", at));
    for (end, did, at) in resets.into_iter().chain(closes) {
        draft.trial(
            Kind::Duplicates,
            format!("{did} after {} of the service time", percent(at)),
            |key| {
                let cut = Shot::plain(key).over(Over::Http2).cut(Cut::After(end, at));
                let retry = Shot::plain(key).over(Over::Http2).at(1);
                vec![Step::One(cut), Step::Insist(retry), Step::One(Shot::plain(key))]
            },
        );
    }
}

/// Parts of a thousand of the service time.
const RESETS: [u32; 5] = [0, 20, 300, 700, 1000];
const CLOSES: [u32; 3] = [20, 300, 700];
