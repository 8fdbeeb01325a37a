//! T2: the same request at the same instant. All but the last byte goes ahead; then all last bytes at once.

use crate::torture::plan::{Draft, Kind, Over, Shot, Step};

pub(super) fn write(draft: &mut Draft<'_>) {
    for (size, times) in BURSTS {
        for _ in 0..times {
            draft.trial(Kind::Duplicates, format!("burst of {size}"), |key| {
                burst(key, size, Over::Http1)
            });
        }
    }
    for size in HTTP2_BURSTS {
        let label = format!("burst of {size} in one packet (HTTP/2)");
        draft.trial(Kind::Duplicates, label, |key| burst(key, size, Over::Http2));
    }
}

fn burst(key: &str, size: usize, over: Over) -> Vec<Step> {
    let shots = (0..size).map(|node| Shot::plain(key).at(node).over(over));
    vec![Step::Burst(shots.collect()), Step::Insist(Shot::plain(key))]
}

/// How many at once, and how often. Small bursts first: the smallest that fails is the reproducer.
const BURSTS: [(usize, usize); 6] = [(2, 8), (4, 4), (8, 3), (16, 2), (32, 2), (64, 1)];
const HTTP2_BURSTS: [usize; 3] = [2, 8, 32];
