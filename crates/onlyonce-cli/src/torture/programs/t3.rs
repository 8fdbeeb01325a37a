//! T3: connections that are cut at every place of request and answer, then a retry.

use crate::torture::plan::{Cut, Draft, Kind, Shot, Step};

pub(super) fn write(draft: &mut Draft<'_>) {
    let mut cuts = Vec::new();
    cuts.extend(REQUEST.map(Cut::Request));
    cuts.extend(RESPONSE.map(Cut::Response));
    cuts.extend(TIMES.map(Cut::After));
    for _ in 0..RANDOM {
        cuts.push(Cut::Request(draft.below(1000)));
        cuts.push(Cut::Response(draft.below(1000)));
        cuts.push(Cut::After(draft.below(1200)));
    }
    for cut in cuts {
        draft.trial(Kind::Duplicates, cut.to_string(), |key| {
            let first = Shot::plain(key).cut(cut);
            vec![
                Step::One(first),
                Step::Insist(Shot::plain(key).at(1)),
                Step::One(Shot::plain(key)),
            ]
        });
    }
}

/// First byte, inside the head, about its end, inside the body, all but the last byte.
const REQUEST: [u32; 5] = [1, 400, 850, 950, 999];
/// No byte, first byte, inside the head, about its end, inside the body, all but the last byte.
const RESPONSE: [u32; 6] = [0, 1, 400, 700, 900, 999];
/// While the service works.
const TIMES: [u32; 5] = [100, 300, 600, 900, 1000];
const RANDOM: usize = 3;
