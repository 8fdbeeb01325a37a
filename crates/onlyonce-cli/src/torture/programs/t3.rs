//! T3: connections that end at every place of request and answer, by a reset and in order, then a retry: at once, and
//! after the target has noticed.

use crate::torture::plan::{Cut, Draft, End, Kind, Shot, Step};

pub(super) fn write(draft: &mut Draft<'_>) {
    let mut cuts = Vec::new();
    for end in End::ALL {
        cuts.extend(REQUEST.map(|part| Cut::Request(end, part)));
        cuts.extend(RESPONSE.map(|part| Cut::Response(end, part)));
        cuts.extend(TIMES.map(|part| Cut::After(end, part)));
    }
    for _ in 0..RANDOM {
        cuts.push(Cut::Request(either(draft), draft.below(1000)));
        cuts.push(Cut::Response(either(draft), draft.below(1000)));
        cuts.push(Cut::After(either(draft), draft.below(1200)));
    }
    cuts.extend(TIMES.map(Cut::HalfClosed));
    for cut in cuts {
        cut_and_retried(draft, cut.to_string(), cut, None);
    }
    for cut in NOTICED {
        let label = format!("{cut}, and the retry waits until it was noticed");
        cut_and_retried(draft, label, cut, Some(Step::Wait(NOTICE)));
    }
}

fn either(draft: &mut Draft<'_>) -> End {
    End::ALL[usize::from(draft.below(2) == 1)]
}

fn cut_and_retried(draft: &mut Draft<'_>, label: String, cut: Cut, wait: Option<Step>) {
    draft.trial(Kind::Duplicates, label, |key| {
        let first = Step::One(Shot::plain(key).cut(cut));
        let retries = [Step::Insist(Shot::plain(key).at(1)), Step::One(Shot::plain(key))];
        [first].into_iter().chain(wait).chain(retries).collect()
    });
}

/// First byte, inside the head, about its end, inside the body, all but the last byte.
const REQUEST: [u32; 5] = [1, 400, 850, 950, 999];
/// No byte, first byte, inside the head, about its end, inside the body, all but the last byte.
const RESPONSE: [u32; 6] = [0, 1, 400, 700, 900, 999];
/// While the service works.
const TIMES: [u32; 5] = [100, 300, 600, 900, 1000];
const RANDOM: usize = 3;
/// Cuts that a target may take a while to notice.
const NOTICED: [Cut; 8] = [
    Cut::Request(End::Reset, 950),
    Cut::Request(End::Close, 950),
    Cut::After(End::Reset, 100),
    Cut::After(End::Close, 100),
    Cut::After(End::Reset, 600),
    Cut::After(End::Close, 600),
    Cut::HalfClosed(100),
    Cut::HalfClosed(600),
];
/// The wait before the retry, in parts of a thousand of the service time.
const NOTICE: u32 = 300;
